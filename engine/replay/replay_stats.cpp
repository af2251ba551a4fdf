#include "engine/replay/replay_stats.h"

namespace draftscope {

void ReplayStats::add(const HeadRound& round) {
    ++rounds;
    drafted += round.tree_nodes - 1;
    accepted += round.accepted;
    committed += round.committed;
    covered += round.covered;
    active_rows_sum += round.active_rows;
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

std::optional<double> ReplayStats::covered_mass() const {
    return ratio(covered_prob_sum, covered_prob_rounds);
}

std::vector<double> ReplayStats::per_depth() const {
    std::vector<double> out;
    for (const DepthAcceptance& depth : depths) out.push_back(depth.rate());
    return out;
}

}  // namespace draftscope
