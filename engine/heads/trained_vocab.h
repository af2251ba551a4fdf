#pragma once

#include <memory>

#include "engine/heads/head.h"

namespace draftscope {

/// Creates a trimmed head with trained weights: VocabTrim-T, and BCL trained with its drafter. The artefact
/// has `ids` and `weight`, or weight.0, weight.1, ... per draft level (one for each Medusa head).
Result<std::unique_ptr<LmHead>> make_trained_vocab_head(const HeadSpec& spec, const HeadFiles& artefacts);

}  // namespace draftscope
