#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

/// Which draft tree decodes fastest, from what a few pilot rounds under a large tree accepted and from
/// measured times: `--tree auto`. Plain numbers, so that it can be asked without a model.
namespace draftscope {

/// TreeSpec's numbers: depth = drafter forwards after the first, nodes include the root. topk = 1 is a chain.
struct TreeShape {
    int depth = 0, topk = 1, nodes = 2;
    bool operator==(const TreeShape&) const = default;
};

/// One node of a pilot round; parents come before children, node 0 is the root.
struct PilotNode {
    int parent = -1;
    int depth = 0;
    float cum_logprob = 0;  ///< along the path, by the drafter
    bool accepted = false;
};
using PilotRound = std::vector<PilotNode>;

/// Nanoseconds of one round.
struct DraftCost {
    double fixed = 0;  ///< catching up, the first level, choosing nodes, acceptance
    double level = 0;  ///< each further level
};
struct RoundCosts {
    /// (rows, time) of verifications, rows rising, the first of one row.
    std::vector<std::pair<int, double>> verify;
    DraftCost chain, tree;
};

struct TreeForecast {
    std::string head;  ///< under which it was measured; "" = the drafter has none to choose
    TreeShape tree;
    double tau = 1;  ///< over the pilot rounds
    double round_ns = 0;
    double speedup = 0;  ///< tokens per second against one token per verification of one row
};

/// Time of a verification of `rows` rows: linear between those measured and past the last.
double verify_ns(const RoundCosts& costs, int rows);

/// tau of `tree` over pilot rounds whose tree holds it: a grown tree of the same topk keeps the nodes with
/// the best cumulative scores down to its depth, a chain follows the best child. A node that the pilot did
/// not have counts as rejected.
double pilot_tau(std::span<const PilotRound> rounds, const TreeShape& tree);

/// A tree whose tau is known from elsewhere.
TreeForecast forecast_tree(const TreeShape& tree, double tau, const RoundCosts& costs);

/// Every chain and every smaller grown tree within `pilot`, best speed first, ties to fewer nodes. Empty
/// without rounds or times.
std::vector<TreeForecast> forecast_trees(std::span<const PilotRound> rounds, const TreeShape& pilot,
                                         const RoundCosts& costs);

}  // namespace draftscope
