#include "app/gui/models/alpha.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "stats/cost_model.h"

namespace draftscope {
namespace {

/// What the drafts of a node say of its distributions.
struct DraftedMass {
    double both = 0, target = 0, draft = 0;  ///< sums of min(p, q), p and q
    bool counts = false, has_drafts = false;
};

/// Adds the positions of one tree. `masses` is memory for reuse.
void add_tree(const Snapshot& snapshot, const RoundEntry& round, std::vector<DraftedMass>& masses,
              AlphaBounds& alpha) {
    masses.assign(round.nodes.count, {});
    for (std::uint32_t i = 0; i < round.nodes.count; ++i) {
        const NodeRow& node = snapshot.nodes[round.nodes.first + i];
        masses[i].counts = node.parent < 0 || node.accepted;
        if (node.parent < 0 || node.parent >= static_cast<int>(i)) continue;
        DraftedMass& parent = masses[node.parent];
        if (!parent.counts || !node.target_prob) continue;
        const double p = static_cast<double>(*node.target_prob),
                     q = std::exp(static_cast<double>(node.draft_logprob));
        parent.both += std::min(p, q);
        parent.target += p;
        parent.draft += q;
        parent.has_drafts = true;
    }
    for (const DraftedMass& mass : masses) {
        if (!mass.counts || !mass.has_drafts) continue;
        const double left = std::max(0.0, 1 - std::max(mass.target, mass.draft));
        alpha.low += std::min(mass.both, 1.0);
        alpha.high += std::min(mass.both + left, 1.0);
        ++alpha.positions;
    }
}

/// Returns "3.21 to 3.42", or one number if both print the same.
std::string range_text(double low, double high) {
    const std::string a = fmt::format("{:.2f}", low), b = fmt::format("{:.2f}", high);
    return a == b ? a : fmt::format("{} to {}", a, b);
}

}  // namespace

std::optional<AlphaBounds> recorded_alpha(const Snapshot& snapshot, const RunRow& run) {
    if (run.temperature != 0 && run.temperature != 1) return std::nullopt;
    AlphaBounds alpha;
    std::vector<DraftedMass> masses;
    for (std::size_t r = 0; r < snapshot.rounds.size(); ++r) {
        const RoundEntry& round = snapshot.rounds[r];
        if (round.row.run_id != run.id || round.nodes.count < 2 || snapshot.stored != nullptr) continue;
        add_tree(snapshot, round, masses, alpha);
        alpha.drafts = std::max(alpha.drafts, round.row.tree_depth);
        alpha.chains = alpha.chains && round.row.tree_nodes == round.row.tree_depth + 1;
    }
    if (alpha.positions == 0) return std::nullopt;
    alpha.low /= static_cast<double>(alpha.positions);
    alpha.high /= static_cast<double>(alpha.positions);
    return alpha;
}

std::string alpha_text(const AlphaBounds& alpha, double tau, double speedup) {
    const double low = expected_tokens(alpha.low, alpha.drafts),
                 high = expected_tokens(alpha.high, alpha.drafts);
    std::string text =
        fmt::format("alpha {} by the recorded drafts; a chain of {} has {} tokens by DynaSpec's eq. 1",
                    range_text(alpha.low, alpha.high), alpha.drafts, range_text(low, high));
    // Eq. 2 divides the tokens by the round's time, as the measured speed-up does tau.
    if (alpha.chains && tau > 0 && speedup > 0)
        text += fmt::format(", x {} AR by eq. 2", range_text(low * speedup / tau, high * speedup / tau));
    return text;
}

}  // namespace draftscope
