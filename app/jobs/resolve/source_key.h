#pragma once

#include <string>

#include "app/jobs/resolve/resolve.h"
#include "engine/recording/recording.h"

/// Identifies what the acceptance of a swept setting comes from, so that a saved sweep notices changed files.
/// The keys hash sizes and samples of the files, as checkpoint_hash() does.
namespace draftscope {

/// Identifies a recording, its texts and its target's weights by 16 hex digits. It does not depend on the
/// shard. `model` is the target's file or folder; it does not count if the recording has its own weights.
std::string recording_key(const DecodeRecording& recording, const std::string& model);

/// Identifies the files of a run's drafter and head by 16 hex digits; "" if it uses none.
std::string weights_key(const ResolvedRun& run);

}  // namespace draftscope
