#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/verify/acceptance_rule.h"

namespace draftscope {

/// Simulated acceptance, independent of the target. It gives targets with random weights realistic round
/// timings. The text is meaningless, and every output says "acceptance replayed".
struct SimulatedAcceptance {
    /// Probability that the draft at depth i + 1 is accepted if its parent was. The last value holds for all
    /// deeper drafts.
    std::vector<double> rates;
};

/// Parses `--simulate-acceptance`: "real" (none), "rate:0.8", "rate:0.9/0.8/0.7" by depth, or "trace:FILE".
/// FILE is the output of `draftscope replay --json`, whose histogram of accepted drafts for head `spec` is
/// used. "trace:FILE#HEAD" uses another head; an unknown HEAD is bad_input that lists the file's heads.
/// `spec` is the canonical text of the run's head, "" for a drafter without heads.
Result<std::optional<SimulatedAcceptance>> parse_acceptance(const std::string& text, const std::string& spec);

/// Returns a rule that accepts the drafter's best drafts at the given rates. A path of first children ends at
/// the first rejection or at a leaf. Random numbers depend on seed, sequence and position. The bonus is the
/// target's choice. Drafts are made as for `verify`.
RulePtr make_simulated_rule(SimulatedAcceptance simulated, RulePtr verify);

}  // namespace draftscope
