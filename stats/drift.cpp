#include "stats/drift.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/phase.h"
#include "capture/queries.h"

namespace draftscope {

namespace {

constexpr double large_difference = 0.05;

}  // namespace

VerifyShape verify_shape(const Snapshot& snapshot, const StepEntry& step) {
    VerifyShape shape{0, static_cast<int>(step.rounds.count)};
    for (std::uint32_t r = 0; r < step.rounds.count; ++r)
        shape.rows += snapshot.rounds[step.rounds.first + r].row.tree_nodes;
    return shape;
}

void add(VerifyTimes& sum, const VerifyTimes& more) {
    for (const auto& [shape, time] : more) {
        sum[shape].rounds += time.rounds;
        sum[shape].ns += time.ns;
    }
}

std::unordered_map<RowId, VerifyTimes> verify_times(const Snapshot& snapshot, RowId run_id) {
    std::unordered_map<RowId, VerifyTimes> out;
    for (std::size_t i = 0; i < snapshot.steps.size(); ++i) {
        const StepEntry& step = snapshot.steps[i];
        if (step.row.run_id != run_id || !step.row.time_counts() || step.rounds.count == 0) continue;
        const VerifyShape shape = verify_shape(snapshot, step);
        const double ns = static_cast<double>(step_phases(snapshot, i).ns[static_cast<int>(Phase::verify)]) /
                          step.rounds.count;
        if (ns <= 0) continue;
        for (std::uint32_t r = 0; r < step.rounds.count; ++r) {
            VerifyTime& time = out[snapshot.rounds[step.rounds.first + r].row.prompt_id][shape];
            time.rounds += 1;
            time.ns += ns;
        }
    }
    return out;
}

MatchedTime matched(const VerifyPair& pair) {
    MatchedTime out;
    for (const auto& [shape, a] : pair.a) {
        const auto found = pair.b.find(shape);
        if (found == pair.b.end()) continue;
        const VerifyTime& b = found->second;
        const double rounds = std::min(a.rounds, b.rounds);
        out.add({rounds, rounds * a.ns / a.rounds, rounds * b.ns / b.rounds});
    }
    return out;
}

bool MachineControl::is_large() const {
    return std::abs(ratio.value - 1) > large_difference;
}

std::optional<MachineControl> machine_control(std::span<const VerifyPair> conversations,
                                              const BootstrapOptions& options) {
    std::vector<MatchedTime> units;
    MatchedTime sum;
    for (const VerifyPair& pair : conversations) {
        const MatchedTime one = matched(pair);
        if (one.rounds <= 0) continue;
        units.push_back(one);
        sum.add(one);
    }
    if (sum.a_ns <= 0 || sum.b_ns <= 0) return std::nullopt;
    MachineControl out;
    out.conversations = units.size();
    out.rounds = sum.rounds;
    out.a_ns = sum.a_ns / sum.rounds;
    out.b_ns = sum.b_ns / sum.rounds;
    out.ratio = bootstrap_estimate(sum.b_ns / sum.a_ns, units.size(),
                                   of_drawn_sum(units,
                                                [](const MatchedTime& drawn) {
                                                    return Fraction{drawn.b_ns, drawn.a_ns}.value();
                                                }),
                                   options);
    if (out.ratio.interval) out.differs = out.is_large() && !out.ratio.interval->contains(1);
    return out;
}

}  // namespace draftscope
