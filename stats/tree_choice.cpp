#include "stats/tree_choice.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace draftscope {
namespace {

/// Marks the nodes of `round` that `tree` would contain, root included.
std::vector<char> select_nodes(const PilotRound& round, const TreeShape& tree) {
    std::vector<char> kept(round.size(), 0);
    kept[0] = 1;
    if (tree.topk == 1) {
        std::size_t at = 0;
        for (int level = 0; level <= tree.depth; ++level) {
            std::size_t best = 0;
            for (std::size_t i = 1; i < round.size(); ++i) {
                if (round[i].parent != static_cast<int>(at)) continue;
                if (best == 0 || round[i].cum_logprob > round[best].cum_logprob) best = i;
            }
            if (best == 0) break;
            kept[best] = 1;
            at = best;
        }
        return kept;
    }
    std::vector<std::size_t> order(round.size() - 1);
    std::iota(order.begin(), order.end(), std::size_t{1});
    std::erase_if(order, [&](std::size_t i) { return round[i].depth > tree.depth + 1; });
    // A child scores no better than its parent and comes later, so the kept nodes are connected.
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return round[a].cum_logprob > round[b].cum_logprob;
    });
    const std::size_t count = std::min(order.size(), static_cast<std::size_t>(tree.nodes) - 1);
    for (std::size_t i = 0; i < count; ++i) kept[order[i]] = 1;
    return kept;
}

}  // namespace

double verify_ns(const RoundCosts& costs, int rows) {
    const auto& times = costs.verify;
    if (times.empty()) return 0;
    if (times.size() == 1 || rows <= times.front().first) return times.front().second;
    auto above = std::lower_bound(times.begin(), times.end(), rows,
                                  [](const auto& time, int wanted) { return time.first < wanted; });
    if (above == times.end()) --above;
    const auto& [high_rows, high] = *above;
    const auto& [low_rows, low] = *(above - 1);
    return low + (high - low) * (rows - low_rows) / (high_rows - low_rows);
}

double pilot_tau(std::span<const PilotRound> rounds, const TreeShape& tree) {
    double committed = 0;
    for (const PilotRound& round : rounds) {
        committed += 1;
        if (round.empty()) continue;
        const std::vector<char> kept = select_nodes(round, tree);
        for (std::size_t i = 1; i < round.size(); ++i) committed += round[i].accepted && kept[i] ? 1 : 0;
    }
    return rounds.empty() ? 1.0 : committed / static_cast<double>(rounds.size());
}

SweepSetting forecast_tree(const TreeShape& tree, double tau, const RoundCosts& costs) {
    constexpr double ms_per_ns = 1e-6;
    SweepSetting one;
    one.shape = tree;
    one.units = {{1, tau}};
    one.round_ms = ms_per_ns * (costs.fixed + costs.level * tree.depth + verify_ns(costs, tree.nodes));
    one.plain_ms = ms_per_ns * verify_ns(costs, 1);
    return one;
}

std::vector<SweepSetting> forecast_trees(std::span<const PilotRound> rounds, const TreeShape& pilot,
                                         const RoundCosts& costs) {
    std::vector<SweepSetting> found;
    if (rounds.empty() || costs.verify.empty()) return found;
    const auto add = [&](const TreeShape& tree) {
        found.push_back(forecast_tree(tree, pilot_tau(rounds, tree), costs));
    };
    for (int depth = 0; depth <= pilot.depth; ++depth) {
        add({depth, 1, depth + 2});
        if (pilot.topk == 1) continue;
        const int possible = 1 + pilot.topk + depth * pilot.topk * pilot.topk;
        for (int nodes = depth + 3; nodes <= std::min(possible, pilot.nodes); ++nodes)
            add({depth, pilot.topk, nodes});
    }
    return found;
}

}  // namespace draftscope
