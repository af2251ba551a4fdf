#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/draft/eagle_checkpoint.h"

namespace draftscope {

/// "synthetic:NAME" as a drafter's path: random weights at the dimensions of the drafters published for the
/// synthetic target NAME. They cost what the published ones cost and draft nothing of use.
bool is_synthetic_drafter(std::string_view path);

/// The target's LM head and embeddings serve, as in drafters trained on the full vocabulary.
Status make_synthetic_eagle(EagleGeneration generation, const std::string& path, const Target& target,
                            EagleCheckpoint& out);
/// `heads` Medusa heads of one residual block each over the target's LM head; with `sees_path`, Hydra's.
Result<std::unique_ptr<WeightSource>> make_synthetic_path_heads(const std::string& path, const Target& target,
                                                                int heads, bool sees_path);

}  // namespace draftscope
