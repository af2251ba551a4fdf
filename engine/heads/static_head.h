#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/heads/head.h"

namespace draftscope {

/// How many tokens a static head keeps of a target.
using SizeRule = std::function<Result<int>(const HeadWeights&)>;

/// A head that keeps the first tokens of `ranking` (most frequent first), as many as `size` says: FR-Spec and
/// its kin, which differ in where the ranking and the size come from. Kept logits are those of the full head,
/// bit for bit. `id` names the head in messages.
std::unique_ptr<Head> make_static_head(std::string id, std::vector<TokenId> ranking, SizeRule size);

/// The head that `spec` names with the ranking of the artefacts and the size of size_from_spec.
Result<std::unique_ptr<Head>> make_ranked_head(const HeadSpec& spec, const HeadArtefacts& artefacts);

/// `v` of the spec, else a quarter of the vocabulary in steps of 64 rows (our default; see the registry).
Result<SizeRule> size_from_spec(const HeadSpec& spec);

/// The ranking file of a head that cannot do without one; none given is bad_input that names the option.
Result<std::string> needed_ranking(const HeadArtefacts& artefacts, std::string_view head);

}  // namespace draftscope
