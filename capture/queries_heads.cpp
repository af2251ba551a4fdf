#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/bisect.h"
#include "capture/queries.h"

namespace draftscope {

namespace {

struct HeadSums {
    std::string head;
    HeadMode mode = HeadMode::drive;
    std::int64_t rounds = 0, timed = 0, accepted = 0, committed = 0, covered = 0, bytes = 0, flops = 0,
                 mass_rounds = 0, own_rounds = 0;
    TimeNs head_ns = 0;
    double active_rows = 0, row_tokens = 0, mass = 0;
};

HeadSums& sums_for(std::vector<HeadSums>& sums, const HeadEvalRow& row) {
    auto found = std::find_if(sums.begin(), sums.end(),
                              [&](const HeadSums& of) { return of.mode == row.mode && of.head == row.head; });
    if (found == sums.end()) {
        sums.push_back({row.head, row.mode});
        found = sums.end() - 1;
    }
    return *found;
}

void add(HeadSums& of, const HeadEvalRow& row, bool timed) {
    ++of.rounds;
    of.accepted += row.accepted;
    of.committed += row.committed;
    of.covered += row.covered;
    of.bytes += row.bytes;
    of.flops += row.flops;
    of.active_rows += row.active_rows;
    if (row.row_tokens) {
        of.row_tokens += *row.row_tokens;
        ++of.own_rounds;
    }
    if (row.covered_mass) {
        of.mass += *row.covered_mass;
        ++of.mass_rounds;
    }
    if (!timed) return;
    ++of.timed;
    of.head_ns += row.head_ns;
}

std::optional<double> ratio(double a, double b) {
    return b != 0 ? std::optional<double>(a / b) : std::nullopt;
}

HeadStats make_stats(const HeadSums& of, double calls_per_round) {
    const auto rounds = static_cast<double>(of.rounds);
    HeadStats row;
    row.head = of.head;
    row.mode = of.mode;
    row.rounds = of.rounds;
    row.timed_rounds = of.timed;
    if (of.mode != HeadMode::calibration) {
        row.tau = static_cast<double>(of.committed) / rounds;
        row.tau_unclipped = 1 + static_cast<double>(of.accepted) / rounds;
    }
    row.active_rows = of.active_rows / rounds;
    row.bytes_per_round = static_cast<double>(of.bytes) / rounds;
    row.flops_per_round = static_cast<double>(of.flops) / rounds;
    if (calls_per_round > 0) row.bytes_per_call = row.bytes_per_round / calls_per_round;
    row.head_ns_per_round = ratio(static_cast<double>(of.head_ns), static_cast<double>(of.timed)).value_or(0);
    row.coverage = ratio(static_cast<double>(of.covered), static_cast<double>(of.committed));
    row.row_tokens = ratio(of.row_tokens, static_cast<double>(of.own_rounds));
    row.covered_mass = ratio(of.mass, static_cast<double>(of.mass_rounds));
    return row;
}

/// Calls of the driving head per round, over sampled counted steps.
double head_calls_per_round(const Snapshot& snapshot, RowId run_id) {
    std::int64_t rounds = 0, calls = 0;
    for (const StepEntry& step : snapshot.steps) {
        if (step.row.run_id != run_id || !step.row.time_counts() || !step.row.sampled) continue;
        rounds += step.rounds.count;
        calls += step.head_calls;
    }
    return ratio(static_cast<double>(calls), static_cast<double>(rounds)).value_or(0);
}

}  // namespace

std::optional<std::size_t> round_index(const Snapshot& snapshot, RowId round_id) {
    if (round_id == 0) return std::nullopt;
    const std::size_t at = bisect(0, snapshot.rounds.size(),
                                  [&](std::size_t i) { return snapshot.rounds[i].row.id < round_id; });
    if (at == snapshot.rounds.size() || snapshot.rounds[at].row.id != round_id) return std::nullopt;
    return at;
}

bool time_counts(const Snapshot& snapshot, HeadMode mode, std::optional<std::size_t> round) {
    if (!round) return true;
    const StepRow& step = snapshot.steps[snapshot.rounds[*round].step_index].row;
    if (mode == HeadMode::drive) return step.time_counts() && step.sampled;
    return step.excluded != Excluded::warmup;
}

bool has_own_shortlists(std::optional<double> row_tokens, double active_rows) {
    const double own = std::nearbyint(row_tokens.value_or(0));
    return own != 0 && own != std::nearbyint(active_rows);
}

std::vector<HeadStats> head_stats(const Snapshot& snapshot, RowId run_id) {
    std::vector<HeadSums> sums;
    for (const HeadEvalRow& row : snapshot.head_evals) {
        if (row.run_id != run_id) continue;
        add(sums_for(sums, row), row, time_counts(snapshot, row.mode, round_index(snapshot, row.round_id)));
    }
    const double calls = head_calls_per_round(snapshot, run_id);
    std::vector<HeadStats> out;
    for (const HeadSums& of : sums) out.push_back(make_stats(of, calls));
    std::stable_sort(out.begin(), out.end(), [](const HeadStats& a, const HeadStats& b) {
        return std::pair(a.mode, a.head) < std::pair(b.mode, b.head);
    });
    return out;
}

}  // namespace draftscope
