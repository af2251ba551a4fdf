#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Returns whether a capture holds swept settings and no run.
Result<bool> is_sweep_file(const std::string& path);

/// Joins the sweeps of `files`, saved by the shards of one command, to one sweep in the new file `out`.
/// `profile` is the file that they were swept with. The result equals the sweep of the whole recording.
/// bad_input names what differs between two files, and a shard that is missing, doubled or incomplete.
/// Returns the number of settings.
Result<std::size_t> pool_sweeps(const std::string& out, const std::vector<std::string>& files,
                                const std::string& profile);

}  // namespace draftscope
