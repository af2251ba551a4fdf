#pragma once

#include <memory>

#include "app/jobs/resolve/resolve.h"
#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "engine/recording/recording.h"
#include "engine/transformer/target.h"

/// Loads the drafter of a resolved run, describes the weights of its heads, and identifies its files. Keys
/// hash sizes and samples of the files, as checkpoint_hash() does, so that a saved sweep notices changed
/// files.
namespace draftscope {

Result<std::unique_ptr<Drafter>> load_drafter(const ResolvedRun& run, Target& target,
                                              kernels::Backend& backend);

/// Returns what the heads of `run` are built from. Pointers refer to `drafter` and `target`.
HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target);
/// As above, for a target whose tokens and name are those of a recording.
HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target,
                         const RecordedTarget& recorded);

/// Identifies a recording, its texts and its target's weights by 16 hex digits. It does not depend on the
/// shard. `model` is the target's file or folder; it does not count if the recording has its own weights.
std::string recording_key(const DecodeRecording& recording, const std::string& model);

/// Identifies the files of a run's drafter and head by 16 hex digits; "" if it uses none.
std::string weights_key(const ResolvedRun& run);

}  // namespace draftscope
