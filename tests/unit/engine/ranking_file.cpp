#include "tests/unit/engine/ranking_file.h"

#include <fmt/format.h>

#include <fstream>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace draftscope::testing {

RankingFile::RankingFile(const std::vector<std::int32_t>& ids, const std::string& tensor) {
    const std::size_t bytes = ids.size() * sizeof(std::int32_t);
    std::string header = fmt::format(
        "{{\"{}\":{{\"dtype\":\"I32\",\"shape\":[{}],\"data_offsets\":[0,{}]}}}}", tensor, ids.size(), bytes);
    while (header.size() % 8 != 0) header += ' ';
    const std::uint64_t length = header.size();
    std::ofstream file(path(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    file.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(bytes));
}

RankingFile RankingFile::shuffled(int vocab) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    Rng rng(17);
    for (std::size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[rng.below(static_cast<std::uint32_t>(i))]);
    return RankingFile(ids);
}

}  // namespace draftscope::testing
