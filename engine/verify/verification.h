#pragma once

#include <vector>

#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"

/// What a step's query and plans need for a rule, and the target's choices in its results.
namespace draftscope {

/// Returns the query whose results the rule needs, with the draft logits.
LogitsQuery make_query(const AcceptanceRule& rule, const Sampling& sampling, int vocab);
/// Adds the random numbers and the limit of the accepted path to a plan. `place` is that of the token after
/// the root.
void add_acceptance_inputs(const AcceptanceRule& rule, const Sampling& sampling, const TokenPosition& place,
                           TreePlan& plan);
/// Sets `out` to the target's choices [rows].
void read_choices(const LogitsResult& answers, const Sampling& sampling, std::vector<TargetSample>& out);

}  // namespace draftscope
