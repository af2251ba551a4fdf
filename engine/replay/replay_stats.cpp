#include "engine/replay/replay_stats.h"

namespace draftscope {

void ReplayStats::add(const HeadRound& round) {
    ++rounds;
    draft_tokens += round.tree_nodes - 1;
    accepted += round.accepted;
    committed += round.committed;
    covered += round.covered;
    active_rows_sum += round.active_rows;
    row_tokens_sum += round.row_tokens;
    bytes_sum += static_cast<double>(round.bytes);
    flops_sum += round.flops;
    if (round.covered_mass) {
        covered_prob_sum += *round.covered_mass;
        ++covered_prob_rounds;
    }
    const std::size_t bin = round.accepted;
    if (histogram.size() <= bin) histogram.resize(bin + 1);
    ++histogram[bin];
    add_round(depths, round.tree_depth, round.accepted, round.clipped);
}

void ReplayStats::add(std::span<const LevelOverlap> levels) {
    if (overlaps.size() < levels.size()) overlaps.resize(levels.size());
    for (std::size_t l = 0; l < levels.size(); ++l) {
        overlaps[l].alpha_sum += levels[l].alpha_sum;
        overlaps[l].positions += levels[l].positions;
    }
}

std::optional<double> ReplayStats::alpha() const {
    LevelOverlap all;
    for (const LevelOverlap& level : overlaps) {
        all.alpha_sum += level.alpha_sum;
        all.positions += level.positions;
    }
    return ratio(all.alpha_sum, all.positions);
}

std::vector<double> ReplayStats::alpha_per_depth() const {
    std::vector<double> out;
    for (const LevelOverlap& level : overlaps)
        out.push_back(ratio(level.alpha_sum, level.positions).value_or(0));
    return out;
}

std::optional<double> ReplayStats::covered_mass() const {
    return ratio(covered_prob_sum, covered_prob_rounds);
}

std::vector<double> ReplayStats::per_depth() const {
    std::vector<double> out;
    for (const DepthAcceptance& depth : depths) out.push_back(depth.rate());
    return out;
}

}  // namespace draftscope
