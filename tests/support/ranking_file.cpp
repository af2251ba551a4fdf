#include "tests/support/ranking_file.h"

#include <fmt/format.h>

#include <fstream>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace draftscope::testing {

RankingFile::RankingFile(const std::vector<std::int32_t>& ids, const std::string& tensor) {
    write({{tensor, ids}});
}

RankingFile::RankingFile(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& counts) {
    write({{"ids", ids}, {"counts", counts}});
}

void RankingFile::write(const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& tensors) const {
    std::string header;
    std::size_t offset = 0;
    for (const auto& [name, values] : tensors) {
        const std::size_t end = offset + values.size() * sizeof(std::int32_t);
        header += fmt::format("{}\"{}\":{{\"dtype\":\"I32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                              header.empty() ? "{" : ",", name, values.size(), offset, end);
        offset = end;
    }
    header += '}';
    while (header.size() % 8 != 0) header += ' ';
    const std::uint64_t length = header.size();
    std::ofstream file(path(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    for (const auto& [name, values] : tensors)
        file.write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(std::int32_t)));
}

RankingFile RankingFile::shuffled(int vocab) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    Rng rng(17);
    for (std::size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[rng.below(static_cast<std::uint32_t>(i))]);
    std::vector<std::int32_t> counts(ids.size());
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = 1000 / static_cast<int>(i + 1);
    return RankingFile(ids, counts);
}

}  // namespace draftscope::testing
