#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/queries.h"

namespace draftscope {

namespace {

constexpr int head_phase_id = 4;

struct HeadSums {
    std::string head;
    HeadMode mode = HeadMode::drive;
    std::int64_t rounds = 0, committed = 0, covered = 0, bytes = 0, mass_rounds = 0;
    TimeNs head_ns = 0;
    double active_rows = 0, mass = 0;
    std::int64_t paired = 0,
                 paired_full = 0;  ///< committed in calibration rounds: by this head, by the full one
};

/// What one run's counted steps add up to.
struct RunSums {
    std::vector<HeadSums> heads;
    TimeNs step_ns = 0, drive_head_ns = 0;
    std::int64_t rounds = 0, head_calls = 0;
};

bool counts(HeadMode mode, Excluded excluded) {
    if (excluded == Excluded::no) return true;
    return excluded == Excluded::shadow && (mode == HeadMode::aligned || mode == HeadMode::calibration);
}

HeadSums& sums_for(RunSums& sums, const HeadEvalRow& row) {
    auto found = std::find_if(sums.heads.begin(), sums.heads.end(),
                              [&](const HeadSums& of) { return of.mode == row.mode && of.head == row.head; });
    if (found == sums.heads.end()) {
        sums.heads.push_back({row.head, row.mode});
        found = sums.heads.end() - 1;
    }
    return *found;
}

void add(RunSums& sums, const HeadEvalRow& row) {
    HeadSums& of = sums_for(sums, row);
    ++of.rounds;
    of.committed += row.committed;
    of.covered += row.covered;
    of.bytes += row.bytes;
    of.head_ns += row.head_ns;
    of.active_rows += row.active_rows;
    if (row.covered_mass) {
        of.mass += *row.covered_mass;
        ++of.mass_rounds;
    }
    if (row.mode == HeadMode::drive) sums.drive_head_ns += row.head_ns;
}

// Excluded state of the step of a round; rows without a known round count as they are.
Excluded excluded_of(const Snapshot& snapshot, RowId round_id) {
    if (round_id == 0 || snapshot.rounds.empty()) return Excluded::no;
    const RowId guess = round_id - snapshot.rounds[0].row.id;
    if (guess < 0 || guess >= static_cast<RowId>(snapshot.rounds.size())) return Excluded::no;
    const RoundEntry& round = snapshot.rounds[static_cast<std::size_t>(guess)];
    if (round.row.id != round_id) return Excluded::no;
    return snapshot.steps[round.step_index].row.excluded;
}

/// What the driving head committed in the rounds in which the full head drafted too, beside what that would
/// have.
void pair_calibration(const Snapshot& snapshot, RowId run_id, RunSums& sums) {
    std::map<RowId, int> full_committed;
    for (std::size_t i = 0; i < snapshot.head_evals.size(); ++i) {
        const HeadEvalRow& row = snapshot.head_evals[i];
        if (row.run_id != run_id || row.mode != HeadMode::calibration || row.head != "full") continue;
        full_committed[row.round_id] = row.committed;
    }
    for (std::size_t i = 0; i < snapshot.head_evals.size() && !full_committed.empty(); ++i) {
        const HeadEvalRow& row = snapshot.head_evals[i];
        if (row.run_id != run_id || row.mode != HeadMode::drive) continue;
        const auto full = full_committed.find(row.round_id);
        if (full == full_committed.end()) continue;
        for (HeadSums& of : sums.heads) {
            if (of.mode != row.mode || of.head != row.head) continue;
            of.paired += row.committed;
            of.paired_full += full->second;
        }
    }
}

RunSums sums_of(const Snapshot& snapshot, RowId run_id) {
    RunSums sums;
    for (std::size_t i = 0; i < snapshot.head_evals.size(); ++i) {
        const HeadEvalRow& row = snapshot.head_evals[i];
        if (row.run_id == run_id && counts(row.mode, excluded_of(snapshot, row.round_id))) add(sums, row);
    }
    for (std::size_t i = 0; i < snapshot.steps.size(); ++i) {
        const StepEntry& step = snapshot.steps[i];
        if (step.row.run_id != run_id || step.row.excluded != Excluded::no) continue;
        sums.step_ns += step.row.end_ns - step.row.start_ns - step.row.paused_ns;
        sums.rounds += step.rounds.count;
        for (std::uint32_t s = 0; s < step.spans.count; ++s)
            sums.head_calls += snapshot.spans[step.spans.first + s].phase_id == head_phase_id ? 1 : 0;
    }
    pair_calibration(snapshot, run_id, sums);
    return sums;
}

struct Reference {
    FullReference from = FullReference::none;
    double tau = 0, head_ns = 0;  ///< per round
};

FullReference reference_of(HeadMode mode) {
    switch (mode) {
        case HeadMode::drive:
            return FullReference::drive;
        case HeadMode::selfpaced:
            return FullReference::selfpaced;
        case HeadMode::calibration:
            return FullReference::calibration;
        case HeadMode::aligned:
            break;
    }
    return FullReference::none;
}

// Two runs whose only difference that matters for speed and acceptance is the head.
bool comparable(const RunRow& a, const RunRow& b) {
    const auto key = [](const RunRow& run) {
        return std::tie(run.target, run.drafter, run.tree, run.verify, run.temperature, run.batch,
                        run.threads, run.backend, run.precision, run.numerics, run.tier);
    };
    return key(a) == key(b);
}

Reference full_reference(const Snapshot& snapshot, RowId run_id, const RunSums& own) {
    Reference best;
    std::int64_t rounds = 0, committed = 0;
    TimeNs head_ns = 0;
    for (const HeadSums& of : own.heads) {
        const FullReference from = of.head == "full" ? reference_of(of.mode) : FullReference::none;
        if (from == FullReference::none || (best.from != FullReference::none && from > best.from)) continue;
        best.from = from;
        rounds = of.rounds;
        committed = of.committed;
        head_ns = of.head_ns;
    }
    const RunRow* self = snapshot.run(run_id);
    if (best.from == FullReference::none && self != nullptr) {
        for (const RunRow& other : snapshot.runs) {
            if (other.id == run_id || other.head != "full" || !comparable(*self, other)) continue;
            for (const HeadSums& of : sums_of(snapshot, other.id).heads) {
                if (of.head != "full" || of.mode != HeadMode::drive) continue;
                best.from = FullReference::other_run;
                rounds += of.rounds;
                committed += of.committed;
                head_ns += of.head_ns;
            }
        }
    }
    if (rounds == 0) return {};
    best.tau = static_cast<double>(committed) / static_cast<double>(rounds);
    best.head_ns = static_cast<double>(head_ns) / static_cast<double>(rounds);
    return best;
}

std::optional<double> ratio(double a, double b) {
    return b != 0 ? std::optional<double>(a / b) : std::nullopt;
}

HeadStats row_of(const HeadSums& of, const RunSums& run, const Reference& full) {
    const auto rounds = static_cast<double>(of.rounds);
    HeadStats row;
    row.head = of.head;
    row.mode = of.mode;
    row.rounds = of.rounds;
    row.reference = full.from;
    row.tau = static_cast<double>(of.committed) / rounds;
    row.active_rows = of.active_rows / rounds;
    row.bytes_per_round = static_cast<double>(of.bytes) / rounds;
    row.head_ns_per_round = static_cast<double>(of.head_ns) / rounds;
    row.coverage = ratio(static_cast<double>(of.covered), static_cast<double>(of.committed));
    row.covered_mass = ratio(of.mass, static_cast<double>(of.mass_rounds));
    if (run.head_calls > 0)
        row.bytes_per_call =
            row.bytes_per_round * static_cast<double>(run.rounds) / static_cast<double>(run.head_calls);
    if (full.from == FullReference::none) return row;
    row.rho_tau = full.from == FullReference::calibration && of.mode == HeadMode::drive
                      ? ratio(static_cast<double>(of.paired), static_cast<double>(of.paired_full))
                      : ratio(row.tau, full.tau);
    row.nu = ratio(row.head_ns_per_round, full.head_ns);
    if (run.rounds > 0) {
        const double non_head =
            static_cast<double>(run.step_ns - run.drive_head_ns) / static_cast<double>(run.rounds);
        row.kappa = ratio(full.head_ns, non_head);
    }
    if (row.rho_tau && row.nu && row.kappa)
        row.predicted_speedup = *row.rho_tau * (1.0 + *row.kappa) / (1.0 + *row.nu * *row.kappa);
    return row;
}

}  // namespace

std::vector<HeadStats> head_stats(const Snapshot& snapshot, RowId run_id) {
    const RunSums sums = sums_of(snapshot, run_id);
    const Reference full = full_reference(snapshot, run_id, sums);
    std::vector<HeadStats> out;
    for (const HeadSums& of : sums.heads) out.push_back(row_of(of, sums, full));
    std::stable_sort(out.begin(), out.end(), [](const HeadStats& a, const HeadStats& b) {
        return std::pair(a.mode, a.head) < std::pair(b.mode, b.head);
    });
    return out;
}

}  // namespace draftscope
