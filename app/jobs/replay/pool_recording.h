#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Joins recordings, the shards of one command, to the recording of the whole in the new folder `out`. Its
/// turns are in the order of the prompt file. bad_input names what differs between two recordings, and a
/// shard that is missing, doubled or incomplete. Returns the number of conversations.
Result<std::size_t> pool_recordings(const std::string& out, const std::vector<std::string>& folders);

}  // namespace draftscope
