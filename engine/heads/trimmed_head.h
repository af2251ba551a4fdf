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

/// Creates the head of `spec` from the ranking among `artefacts`, with the size of size_from_spec().
Result<std::unique_ptr<LmHead>> make_trimmed_head_from_ranking(const HeadSpec& spec,
                                                               const HeadFiles& artefacts);

/// Returns `v` of the spec; default: a quarter of the vocabulary in steps of 64 rows (ours, see the
/// registry).
Result<SizeRule> size_from_spec(const HeadSpec& spec);

/// Returns the ranking file of a head that requires one. If none is given, bad_input names the option.
Result<std::string> required_ranking(const HeadFiles& artefacts, std::string_view head);

}  // namespace draftscope
