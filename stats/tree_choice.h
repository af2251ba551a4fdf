#pragma once

#include <span>
#include <utility>
#include <vector>

#include "stats/sweep_table.h"

/// Predicts the speed of draft trees for `--tree auto`. The inputs are the accepted nodes of a few pilot
/// rounds with a large tree, and measured times. It uses plain numbers, so it needs no model.
namespace draftscope {

/// One node of a pilot round. Parents precede children; node 0 is the root.
struct PilotNode {
    int parent = -1;
    int depth = 0;
    float cum_logprob = 0;  ///< cumulative along the path, by the drafter
    bool accepted = false;
};
using PilotRound = std::vector<PilotNode>;

/// Nanoseconds of one round.
struct RoundCosts {
    /// (rows, time) of verifications in ascending order of rows; the first one has one row.
    std::vector<std::pair<int, double>> verify;
    double fixed = 0;  ///< extending the drafter's cache, first level, node selection, acceptance
    double level = 0;  ///< each further level
};

/// Returns the time to verify `rows` rows, interpolated linearly and extrapolated past the last measurement.
double verify_ns(const RoundCosts& costs, int rows);

/// Returns tau of `tree` over pilot rounds whose tree contains it. A dynamic tree of the same topk keeps the
/// nodes with the best cumulative scores down to its depth; a chain follows the best child. A node that the
/// pilot tree lacks counts as rejected.
double pilot_tau(std::span<const PilotRound> rounds, const TreeShape& tree);

/// Returns a setting of batch 1 with this shape and tau. Drafter, head and the tree's text are left empty.
SweepSetting forecast_tree(const TreeShape& tree, double tau, const RoundCosts& costs);

/// Returns forecasts for every chain and every smaller dynamic tree within `pilot`. Empty without rounds or
/// times.
std::vector<SweepSetting> forecast_trees(std::span<const PilotRound> rounds, const TreeShape& pilot,
                                         const RoundCosts& costs);

}  // namespace draftscope
