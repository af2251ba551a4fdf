#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/heads/head.h"

namespace draftscope {

/// Returns how many tokens of a target a static head keeps.
using SizeRule = std::function<Result<int>(const HeadWeights&)>;

/// Creates a head that keeps the first tokens of `ranking` (most frequent first), as many as `size` returns.
/// FR-Spec and its variants differ in the source of ranking and size. Kept logits equal those of the full
/// head bit for bit. The tokens that end the text are kept if `spec` says so (eos_param).
std::unique_ptr<LmHead> make_trimmed_head(const HeadSpec& spec, std::vector<TokenId> ranking, SizeRule size);

/// Creates a trimmed head with trained weights: VocabTrim-T, and BCL trained with its drafter. The artefact
/// has `ids` and `weight`, or weight.0, weight.1, ... per draft level (one for each Medusa head).
Result<std::unique_ptr<LmHead>> make_trained_vocab_head(const HeadSpec& spec, const HeadFiles& artefacts);

/// Returns the ranking file of a head that requires one. If none is given, bad_input names the option.
Result<std::string> required_ranking(const HeadFiles& artefacts, std::string_view head);

}  // namespace draftscope
