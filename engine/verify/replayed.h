#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/verify/verify.h"

namespace draftscope {

/// Acceptance that does not look at the target: for targets whose weights are random, to time rounds as they
/// would be. The text means nothing, and every output says "acceptance replayed".
struct ReplayedAcceptance {
    /// Chance that the draft at depth i + 1 is kept when the one above it was; the last one for all deeper.
    std::vector<double> rates;
};

/// Parses `--acceptance`: "real" (nothing), "rate:0.8", "rate:0.9/0.8/0.7" by depth, or "trace:FILE", the
/// rounds by accepted drafts that `draftscope replay --json` printed for the head `spec`.
/// "trace:FILE#HEAD" takes those of another head; a head that the file lacks is bad_input that lists its
/// heads. `spec` is the canonical text of the head that runs, "" for a drafter without heads.
Result<std::optional<ReplayedAcceptance>> parse_acceptance(const std::string& text, const std::string& spec);

/// Follows the first, that is the drafter's best, child as far as the rates and the tree allow. The random
/// numbers are those of the seed, sequence and position. The bonus is the target's choice.
void accept_replayed(const ReplayedAcceptance& replayed, const DraftTree& tree, std::uint64_t seed,
                     const TokenPlace& place, std::span<const TargetChoice> choices, Acceptance& out);

}  // namespace draftscope
