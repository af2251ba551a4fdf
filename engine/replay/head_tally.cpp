#include "engine/replay/head_tally.h"

#include <algorithm>

namespace draftscope {

void HeadTally::add(const HeadRound& round) {
    ++rounds;
    drafted += round.tree_nodes - 1;
    accepted += round.accepted;
    committed += round.committed;
    covered += round.covered;
    active_rows_sum += round.active_rows;
    bytes_sum += static_cast<double>(round.bytes);
    if (round.covered_mass) {
        mass_sum += *round.covered_mass;
        ++mass_rounds;
    }
    const auto bin = static_cast<std::size_t>(round.accepted);
    if (histogram.size() <= bin) histogram.resize(bin + 1);
    ++histogram[bin];
    if (round.clipped) return;
    const auto depth = static_cast<std::size_t>(std::min(round.tree_depth, round.accepted + 1));
    if (reached.size() < depth) {
        reached.resize(depth);
        kept.resize(depth);
    }
    for (std::size_t i = 0; i < depth; ++i) {
        ++reached[i];
        if (i < bin) ++kept[i];
    }
}

std::optional<double> HeadTally::covered_mass() const {
    return ratio(mass_sum, mass_rounds);
}

std::vector<double> HeadTally::per_depth() const {
    std::vector<double> out;
    for (std::size_t i = 0; i < reached.size(); ++i)
        out.push_back(static_cast<double>(kept[i]) / static_cast<double>(reached[i]));
    return out;
}

}  // namespace draftscope
