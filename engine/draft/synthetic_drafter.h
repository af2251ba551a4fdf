#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/draft/eagle_checkpoint.h"

namespace draftscope {

/// Returns whether `path` is "synthetic:NAME": random weights with the dimensions of the drafters published
/// for synthetic target NAME. They cost as much as the published ones, but their drafts are useless.
bool is_synthetic_drafter(std::string_view path);

/// Uses the target's LM head and embeddings, as drafters trained on the full vocabulary do.
Status make_synthetic_eagle(EagleGeneration generation, const std::string& path, const Target& target,
                            EagleCheckpoint& out);
/// Creates `heads` Medusa heads of one residual block each over the target's LM head; with `uses_path`, Hydra
/// heads.
Result<std::unique_ptr<WeightSource>> make_synthetic_decoding_heads(const std::string& path,
                                                                    const Target& target, int heads,
                                                                    bool uses_path);

}  // namespace draftscope
