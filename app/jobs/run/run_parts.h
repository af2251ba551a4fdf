#pragma once

#include <string>

#include "app/jobs/commands/run_config.h"
#include "capture/rows.h"

/// Tells whether runs of captures are parts of one run. Such parts are the shards of a cluster's job, the
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

}  // namespace draftscope
