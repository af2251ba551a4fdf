#include "app/jobs/run/shard_files.h"

#include <fmt/format.h>

namespace draftscope {

std::string shard_text(const Shard& shard) {
    return fmt::format("shard {}/{}", shard.index, shard.count);
}

Status ShardFiles::add(const Shard& shard, const std::string& file) {
    const auto [known, is_new] = files_.emplace(shard.index, file);
    if (is_new) return {};
    return bad_input("{} is in {} and in {}; name each shard once", shard_text(shard), known->second, file);
}

Status ShardFiles::check_all(int count, std::string_view kind) const {
    for (int index = 1; index <= count; ++index)
        if (!files_.contains(index))
            return bad_input("{} is missing; name its {}, too", shard_text({index, count}), kind);
    return {};
}

}  // namespace draftscope
