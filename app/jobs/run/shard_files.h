#pragma once

#include <map>
#include <string>
#include <string_view>

#include "app/jobs/commands/run_config.h"
#include "base/result.h"

namespace draftscope {

/// Returns "shard 2/4".
std::string shard_text(const Shard& shard);

/// The files of the shards of a whole, of which each must be there once.
class ShardFiles {
  public:
    /// bad_input if the shard is known already.
    Status add(const Shard& shard, const std::string& file);
    /// bad_input names the first of `count` shards that is missing. `kind` is what a file is: "capture".
    Status check_all(int count, std::string_view kind) const;

  private:
    std::map<int, std::string> files_;  ///< by index
};

}  // namespace draftscope
