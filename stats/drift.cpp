#include "stats/drift.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/phase_names.h"
#include "capture/queries.h"

namespace draftscope {

namespace {

constexpr double large_difference = 0.05;

}  // namespace

std::size_t verify_phase_index() {
    static const auto found = std::ranges::find(phase_rows, std::string_view("verify"), &PhaseRow::name);
    return found->id;
}

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
        const double ns =
            static_cast<double>(step_phases(snapshot, i).ns[verify_phase_index()]) / step.rounds.count;
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
        out.rounds += rounds;
        out.a_ns += rounds * a.ns / a.rounds;
        out.b_ns += rounds * b.ns / b.rounds;
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
        sum.rounds += one.rounds;
        sum.a_ns += one.a_ns;
        sum.b_ns += one.b_ns;
    }
    if (sum.a_ns <= 0 || sum.b_ns <= 0) return std::nullopt;
    MachineControl out;
    out.conversations = units.size();
    out.rounds = sum.rounds;
    out.a_ns = sum.a_ns / sum.rounds;
    out.b_ns = sum.b_ns / sum.rounds;
    out.ratio = bootstrap_estimate(
        sum.b_ns / sum.a_ns, units.size(),
        [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
            double a = 0, b = 0;
            for (std::size_t i = 0; i < drawn.size(); ++i) {
                a += drawn[i] * units[i].a_ns;
                b += drawn[i] * units[i].b_ns;
            }
            return a > 0 ? std::optional(b / a) : std::nullopt;
        },
        options);
    if (out.ratio.interval) out.differs = out.is_large() && !out.ratio.interval->contains(1);
    return out;
}

}  // namespace draftscope
