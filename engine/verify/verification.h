#pragma once

#include <vector>

#include "engine/verify/acceptance_rule.h"

/// What a step's query and plans need for a rule, and the target's choices in its results.
namespace draftscope {

/// Returns the query whose results the rule needs, with the draft logits.
LogitsQuery make_query(const AcceptanceRule& rule, const Sampling& sampling, int vocab);
/// Sets the limits of the accepted paths and the random numbers of a plan whose trees are listed. `roots`
/// are those of the tokens after the roots.
void add_acceptance_inputs(const AcceptanceRule& rule, const Sampling& sampling,
                           std::span<const TokenPosition> roots, RoundPlan& plan);
/// Sets `out` to the target's choices [rows].
void read_choices(const LogitsResult& results, const Sampling& sampling, std::vector<TargetSample>& out);

}  // namespace draftscope
