#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/result.h"
#include "capture/rows.h"

/// Tells whether runs are parts of a whole, and joins them. Parts are the shards of a cluster's job, the
/// blocks of a bench, or a killed run and its continuation.
namespace draftscope {

/// The place of a run among the parts of a whole.
struct RunPart {
    std::string role;  ///< "run", "baseline", or the method and repetition of a bench
    Shard shard;
    int conversations = 0;  ///< of all shards; 0 = an earlier version did not record it
    int skipped = 0;        ///< conversations of this part that the model could not take
};
RunPart describe_part(const RunRow& run);
/// Returns the role of a bench's run.
std::string bench_role(const std::string& method, int repetition, bool control);

/// Returns the settings in which two runs differ, as "max-new (32 and 64)"; "" if they can be parts of one
/// run. The prompts, the tags and the number of shards count, the number of this shard does not.
std::string part_difference(const RunRow& a, const RunRow& b);

/// Returns "shard 2/4".
std::string shard_text(const Shard& shard);

/// A shard of a whole, and its file.
struct ShardFile {
    Shard shard;
    std::string file;
};
/// Checks shards in ascending order. bad_input names one that is in two files, and the first that is missing.
/// `kind` is what a file is: "capture".
Status check_shards(const std::vector<ShardFile>& shards, std::string_view kind);
/// Sorts the shards and checks them. `Part` is a ShardFile.
template <typename Part>
Status sort_shards(std::vector<Part>& parts, std::string_view kind) {
    std::ranges::stable_sort(parts, {}, [](const Part& one) { return one.shard.index; });
    return check_shards({parts.begin(), parts.end()}, kind);
}

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
