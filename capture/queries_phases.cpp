#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "base/phase_names.h"
#include "capture/quantile.h"
#include "capture/queries.h"
#include "capture/record.h"
#include "capture/samples.h"

namespace draftscope {

namespace {

constexpr int critical_lane = 0;

struct Piece {
    int lane = 0, thread = 0, phase = 0;
    TimeNs start = 0, end = 0;
    std::int64_t bytes = 0;
    TimeNs self = 0;  ///< time in which this span was the innermost open one of its lane
};

// Threads of the critical lane share one time line; each thread of a side lane has a separate one.
bool same_line(const Piece& a, const Piece& b) {
    return a.lane == b.lane && (a.lane == critical_lane || a.thread == b.thread);
}

bool line_order(const Piece& a, const Piece& b) {
    if (a.lane != b.lane) return a.lane < b.lane;
    if (a.lane != critical_lane && a.thread != b.thread) return a.thread < b.thread;
    return a.start != b.start ? a.start < b.start : a.end > b.end;
}

// Assigns every instant of a line to the span that started last, so that self times add up to the union of
// the spans.
void assign_self_times(std::span<Piece> line) {
    std::vector<Piece*> open;
    TimeNs now = 0;
    const auto advance = [&](TimeNs until) {
        while (!open.empty() && now < until) {
            Piece* inner = open.back();
            const TimeNs stop = std::min(inner->end, until);
            if (stop > now) {
                inner->self += stop - now;
                now = stop;
            }
            if (inner->end <= now) open.pop_back();
        }
        now = std::max(now, until);
    };
    for (Piece& piece : line) {
        advance(piece.start);
        open.push_back(&piece);
    }
    while (!open.empty()) {
        const TimeNs end = open.back()->end;
        if (end <= now)
            open.pop_back();
        else
            advance(end);
    }
}

void add_piece(std::vector<Piece>& pieces, const SpanRow& span) {
    if (span.phase_id <= 0 || span.phase_id >= max_phases) return;
    pieces.push_back({span.lane, span.thread_id, span.phase_id, span.start_ns, span.end_ns, span.bytes, 0});
}

std::vector<Piece> collect_pieces(const Snapshot& snapshot, const StepEntry& step) {
    std::vector<Piece> pieces;
    for (std::uint32_t i = 0; i < step.spans.count; ++i)
        add_piece(pieces, snapshot.spans[step.spans.first + i]);
    const RowRange late = snapshot.late_range(step.row.id);
    for (std::uint32_t i = late.first; i < late.first + late.count; ++i) {
        const SpanRow& span = snapshot.spans[snapshot.late_spans[i].span];
        if (span.step_id == step.row.id) add_piece(pieces, span);
    }
    return pieces;
}

/// Puts the critical lane first and computes self times.
void compute_self_times(std::vector<Piece>& pieces) {
    std::sort(pieces.begin(), pieces.end(), line_order);
    for (std::size_t first = 0; first < pieces.size();) {
        std::size_t end = first + 1;
        while (end < pieces.size() && same_line(pieces[first], pieces[end])) ++end;
        assign_self_times({&pieces[first], end - first});
        first = end;
    }
}

// Returns the time in [start, end) in which the critical lane was busy. `pieces`: the result of
// compute_self_times().
TimeNs critical_overlap(const std::vector<Piece>& pieces, const Piece& side) {
    TimeNs covered = 0, reached = side.start;
    for (const Piece& piece : pieces) {
        if (piece.lane != critical_lane || piece.start >= side.end) break;
        const TimeNs start = std::max(piece.start, reached);
        const TimeNs end = std::min(piece.end, side.end);
        if (end <= start) continue;
        covered += end - start;
        reached = end;
    }
    return covered;
}

/// Returns the rows of v_step_phase of a step with these spans, ordered by phase id.
std::vector<StepPhaseRow> sum_by_phase(const StepRow& step, std::vector<Piece> pieces) {
    std::vector<StepPhaseRow> out;
    if (!step.sampled) return out;
    compute_self_times(pieces);
    std::array<StepPhaseRow, max_phases> sums{};  // a phase without spans has no id
    TimeNs critical = 0;                          // union of the critical lane
    for (const Piece& piece : pieces) {
        StepPhaseRow& phase = sums[piece.phase];
        phase.phase_id = piece.phase;
        phase.busy_ns += piece.self;
        phase.bytes += piece.bytes;
        if (piece.lane == critical_lane) {
            phase.exposed_ns += piece.self;
            critical += piece.self;
        } else {
            phase.exposed_ns += std::max<TimeNs>(0, piece.self - critical_overlap(pieces, piece));
        }
    }
    const TimeNs remainder = std::max<TimeNs>(0, step.busy_ns() - critical);
    sums[remainder_phase_id] = {remainder_phase_id, remainder, remainder, 0};
    std::ranges::copy_if(sums, std::back_inserter(out),
                         [](const StepPhaseRow& row) { return row.phase_id != 0; });
    return out;
}

/// As above, of a step of the snapshot: from its spans, or from the stored rows if the spans stay in a file.
std::vector<StepPhaseRow> sum_by_phase(const Snapshot& snapshot, const StepEntry& step) {
    if (snapshot.stored == nullptr) return sum_by_phase(step.row, collect_pieces(snapshot, step));
    std::vector<StepPhaseRow> out;
    for (std::uint32_t i = 0; i < step.phases.count; ++i)
        out.push_back(snapshot.step_phases[step.phases.first + i]);
    return out;
}

PhaseStats summarise(int phase_id, const std::vector<PhaseSample>& samples, TimeNs all_steps) {
    PhaseStats row;
    row.phase_id = phase_id;
    row.count = static_cast<std::int64_t>(samples.size());
    std::vector<double> busy;
    busy.reserve(samples.size());
    std::int64_t bytes = 0;
    for (const PhaseSample& sample : samples) {
        busy.push_back(static_cast<double>(sample.busy_ns));
        row.total_ns += sample.busy_ns;
        row.exposed_ns += sample.exposed_ns;
        bytes += sample.bytes;
    }
    row.median_ns = quantile(busy, 0.5);
    if (busy.size() >= min_samples_for_p90) row.p90_ns = quantile(busy, 0.9);
    if (busy.size() >= min_samples_for_p99) row.p99_ns = quantile(busy, 0.99);
    if (all_steps > 0) row.share = static_cast<double>(row.exposed_ns) / static_cast<double>(all_steps);
    if (row.total_ns > 0) row.gb_per_s = static_cast<double>(bytes) / static_cast<double>(row.total_ns);
    for (double& ns : busy) ns = std::abs(ns - row.median_ns);
    row.mad_ns = gauss_mad * quantile(busy, 0.5);
    return row;
}

}  // namespace

StepPhases step_phases(const Snapshot& snapshot, std::size_t step_index) {
    const StepEntry& step = snapshot.steps[step_index];
    StepPhases out;
    out.step_ns = step.row.busy_ns();
    for (const StepPhaseRow& row : sum_by_phase(snapshot, step)) {
        out.ns[row.phase_id] = row.exposed_ns;
        out.bytes[row.phase_id] = row.bytes;
        if (row.phase_id == remainder_phase_id) out.remainder_ns = row.busy_ns;
    }
    return out;
}

std::vector<StepPhaseRow> step_phase_rows(const StepRow& step, std::span<const SpanRow> spans) {
    std::vector<Piece> pieces;
    for (const SpanRow& span : spans) add_piece(pieces, span);
    return sum_by_phase(step, std::move(pieces));
}

std::vector<PhaseStats> phase_stats(const Snapshot& snapshot, RowId run_id) {
    RunSamples samples;
    samples.update(snapshot, run_id);
    return samples.stats();
}

void RunSamples::update(const Snapshot& snapshot, RowId run_id) {
    const bool same = run_id == run_id_ && snapshot.steps.size() >= seen_.size() &&
                      snapshot.late_spans.size() >= seen_late_ &&
                      (seen_.empty() || &snapshot.steps[0] == &seen_[0]);
    if (!same) *this = RunSamples();
    run_id_ = run_id;
    auto next = static_cast<std::uint32_t>(seen_.size());
    RowId oldest_late = std::numeric_limits<RowId>::max();
    for (std::size_t i = seen_late_; i < snapshot.late_spans.size(); ++i)
        oldest_late = std::min(oldest_late, snapshot.spans[snapshot.late_spans[i].span].step_id);
    while (next > 0 && snapshot.steps[next - 1].row.id >= oldest_late) --next;
    drop_from(next);
    for (std::uint32_t i = next; i < snapshot.steps.size(); ++i) {
        const StepEntry& step = snapshot.steps[i];
        if (step.row.run_id != run_id || !step.row.time_counts()) continue;
        steps_.push_back(i);
        step_ns_.push_back(step.row.busy_ns());
        if (step.row.sampled) sampled_ns_ += step_ns_.back();
        ++steps_read_;
        for (const StepPhaseRow& row : sum_by_phase(snapshot, step))
            phases_[row.phase_id].push_back({i, row.busy_ns, row.exposed_ns, row.bytes});
    }
    seen_ = snapshot.steps;
    seen_late_ = snapshot.late_spans.size();
}

void RunSamples::drop_from(std::uint32_t step) {
    while (!steps_.empty() && steps_.back() >= step) {
        if (seen_[steps_.back()].row.sampled) sampled_ns_ -= step_ns_.back();
        steps_.pop_back();
        step_ns_.pop_back();
    }
    for (std::vector<PhaseSample>& samples : phases_)
        while (!samples.empty() && samples.back().step >= step) samples.pop_back();
}

void RunSamples::drop_first(std::size_t count) {
    count = std::min(count, steps_.size());
    const std::uint32_t first =
        count < steps_.size() ? steps_[count] : std::numeric_limits<std::uint32_t>::max();
    for (std::size_t i = 0; i < count; ++i)
        if (seen_[steps_[i]].row.sampled) sampled_ns_ -= step_ns_[i];
    const auto taken = static_cast<std::ptrdiff_t>(count);
    steps_.erase(steps_.begin(), steps_.begin() + taken);
    step_ns_.erase(step_ns_.begin(), step_ns_.begin() + taken);
    for (std::vector<PhaseSample>& samples : phases_)
        samples.erase(samples.begin(),
                      std::find_if(samples.begin(), samples.end(),
                                   [&](const PhaseSample& sample) { return sample.step >= first; }));
}

std::vector<PhaseStats> RunSamples::stats() const {
    std::vector<PhaseStats> out;
    for (const PhaseRow& phase : std::span(phase_rows).subspan(1)) {
        PhaseStats row = summarise(phase.id, phase_samples(phase.id), sampled_ns_);
        if (row.count > 0 || phase.first_class) out.push_back(row);
    }
    return out;
}

}  // namespace draftscope
