#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Counts of a pooling.
struct PoolReport {
    std::size_t parts = 0;  ///< runs of the files
    std::size_t runs = 0;   ///< runs of the result
};

/// Joins the runs of `files`, shards of one command, to whole runs in the new file `out`. These are a run,
/// its baseline, and each method and repetition of a bench. bad_input names the setting in which two files
/// differ, and a shard that is missing, doubled or incomplete. All runs are held in memory.
Result<PoolReport> pool_captures(const std::string& out, const std::vector<std::string>& files);

}  // namespace draftscope
