#pragma once

#include <memory>

#include "engine/heads/head.h"

namespace draftscope {

/// A trimmed head with weights of its own, from an artefact with `ids` and `weight` (or weight.0, weight.1,
/// ... per draft level: one for each Medusa head): VocabTrim-T, and BCL trained with its drafter.
Result<std::unique_ptr<Head>> make_trained_vocab_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

}  // namespace draftscope
