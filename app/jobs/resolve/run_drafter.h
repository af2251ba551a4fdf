#pragma once

#include <memory>

#include "app/jobs/resolve/resolve.h"
#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "engine/recording/recording_info.h"
#include "engine/transformer/target.h"

/// Loads the drafter of a resolved run and describes the weights of its heads.
namespace draftscope {

/// Loads the drafter that `run` names.
Result<std::unique_ptr<Drafter>> load_drafter(const ResolvedRun& run, Target& target,
                                              kernels::Backend& backend);

/// Returns what the heads of `run` are built from. Pointers refer to `drafter` and `target`.
HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target);
/// As above, for a target whose tokens and name are those of a recording.
HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target,
                         const RecordedTarget& recorded);

}  // namespace draftscope
