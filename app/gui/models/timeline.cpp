#include "app/gui/models/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/bisect.h"
#include "base/phase.h"
#include "base/phase_names.h"
#include "capture/queries.h"

namespace draftscope {
namespace {

constexpr TimeNs parts_of_step = 20;   ///< a single fold's width is 1 / parts_of_step of its step
constexpr TimeNs parts_per_pause = 2;  ///< added for each pause of the step
constexpr TimeNs default_step = 20 * ns_per_ms;
constexpr TimeNs max_steps_in_view = 50;

/// The steps of one run by time; the step in flight is the last one.
class Steps {
  public:
    Steps(const Snapshot& snapshot, RowId run_id) : snapshot_(snapshot) {
        last_ = snapshot.steps.size();
        while (last_ > 0 && snapshot.steps[last_ - 1].row.run_id != run_id) --last_;
        // Runs are contiguous.
        first_ = bisect(0, last_, [&](std::size_t i) { return snapshot.steps[i].row.run_id < run_id; });
        const Snapshot* flight = snapshot.in_flight.get();
        if (flight != nullptr && !flight->steps.empty() && flight->steps[0].row.run_id == run_id)
            in_flight_ = &flight->steps[0].row;
    }
    std::size_t size() const { return last_ - first_ + (in_flight_ != nullptr ? 1 : 0); }
    const StepRow& operator[](std::size_t i) const {
        return i < last_ - first_ ? snapshot_.steps[first_ + i].row : *in_flight_;
    }
    /// Returns the first step that ends after `time`; size() = none.
    std::size_t first_ending_after(TimeNs time) const {
        return bisect(0, size(), [&](std::size_t i) { return (*this)[i].end_ns <= time; });
    }
    /// Returns the step that contains `time`, otherwise the step before it, otherwise the first step.
    std::optional<std::size_t> around(TimeNs time) const {
        if (size() == 0) return std::nullopt;
        const std::size_t next = first_ending_after(time);
        if (next < size() && (*this)[next].start_ns <= time) return next;
        return next == 0 ? 0 : next - 1;
    }

  private:
    const Snapshot& snapshot_;
    std::size_t first_ = 0, last_ = 0;
    const StepRow* in_flight_ = nullptr;
};

std::string_view phase_name(std::uint8_t phase) {
    return phase < phase_rows.size() ? phase_rows[phase].name : std::string_view("unknown");
}

struct Unit {
    double ns;
    const char* name;
};
constexpr std::array<Unit, 4> units = {{{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}}};

}  // namespace

void FoldedAxis::update(const Snapshot& snapshot, RowId run_id) {
    folds_.clear();
    for (const CounterRow& counter : snapshot.counters)
        if (counter.run_id == run_id && counter.name == pause_counter)
            folds_.push_back({counter.time_ns, counter.time_ns + static_cast<TimeNs>(counter.value), 0, 0});
    std::sort(folds_.begin(), folds_.end(), [](const Fold& a, const Fold& b) { return a.start < b.start; });
    const Steps steps(snapshot, run_id);
    std::vector<std::optional<std::size_t>> step_of;
    for (const Fold& fold : folds_) step_of.push_back(steps.around(fold.start));
    std::vector<Fold> kept;
    TimeNs saved = 0;
    for (std::size_t i = 0; i < folds_.size(); ++i) {
        Fold fold = folds_[i];
        const auto same = std::count(step_of.begin(), step_of.end(), step_of[i]);
        const TimeNs net = step_of[i] ? std::max<TimeNs>(steps[*step_of[i]].busy_ns(), 1) : default_step;
        fold.width = std::max<TimeNs>(net / (parts_of_step + parts_per_pause * same), 1);
        const bool overlaps = !kept.empty() && fold.start < kept.back().end;
        if (fold.length() <= 2 * fold.width || overlaps) continue;
        fold.position = fold.start - saved;
        saved += fold.length() - fold.width;
        kept.push_back(fold);
    }
    folds_ = std::move(kept);
}

const Fold* FoldedAxis::first_ending_after(TimeNs time) const {
    const auto at = std::partition_point(folds_.begin(), folds_.end(),
                                         [&](const Fold& fold) { return fold.end <= time; });
    return folds_.data() + (at - folds_.begin());
}

const Fold* FoldedAxis::fold_at(TimeNs time) const {
    const Fold* fold = first_ending_after(time);
    return fold != folds_.data() + folds_.size() && fold->start <= time ? fold : nullptr;
}

TimeNs FoldedAxis::position(TimeNs time) const {
    const Fold* fold = first_ending_after(time);
    TimeNs position = time;
    if (fold != folds_.data()) position = (fold - 1)->position + (fold - 1)->width + time - (fold - 1)->end;
    if (fold == folds_.data() + folds_.size() || time <= fold->start) return position;
    const double part = static_cast<double>(time - fold->start) / static_cast<double>(fold->length());
    return fold->position + static_cast<TimeNs>(std::llround(part * static_cast<double>(fold->width)));
}

TimeNs FoldedAxis::time(TimeNs position) const {
    const auto at = std::partition_point(folds_.begin(), folds_.end(), [&](const Fold& fold) {
        return fold.position + fold.width <= position;
    });
    TimeNs time = position;
    if (at != folds_.begin()) time = (at - 1)->end + position - ((at - 1)->position + (at - 1)->width);
    if (at == folds_.end() || position <= at->position) return time;
    const double part = static_cast<double>(position - at->position) / static_cast<double>(at->width);
    return at->start + static_cast<TimeNs>(std::llround(part * static_cast<double>(at->length())));
}

TimeNs FoldedAxis::busy(TimeNs from, TimeNs to) const {
    if (to < from) return -busy(to, from);
    TimeNs held = 0;
    for (const Fold* fold = first_ending_after(from);
         fold != folds_.data() + folds_.size() && fold->start < to; ++fold)
        held += std::min(fold->end, to) - std::max(fold->start, from);
    return to - from - held;
}

std::vector<AxisPart> FoldedAxis::parts(TimeNs begin, TimeNs end) const {
    std::vector<AxisPart> out;
    const auto add = [&](TimeNs from, TimeNs to) {
        if (to > from) out.push_back({from, to, position(from)});
    };
    TimeNs from = time(begin);
    const TimeNs to = time(end);
    for (const Fold* fold = first_ending_after(from);
         fold != folds_.data() + folds_.size() && fold->start < to; ++fold) {
        add(from, fold->start);
        from = fold->end;
    }
    add(from, to);
    return out;
}

AxisOrigin axis_origin(const Snapshot& snapshot, RowId run_id, const FoldedAxis& axis,
                       const StepRow* selected, TimeNs begin, TimeNs end) {
    const auto of_step = [](const StepRow& step) {
        return AxisOrigin{
            step.start_ns, fmt::format("from step {}", step.ordinal + 1),
            fmt::format("Times are relative to the start of step {}, {:.6f} s into the run, without pauses.",
                        step.ordinal + 1, seconds(step.start_ns))};
    };
    const auto fits = [&](const StepRow& step) {
        return step.busy_ns() > axis.busy(begin, end) / max_steps_in_view;
    };
    if (selected != nullptr && selected->start_ns < end && selected->end_ns > begin && fits(*selected))
        return of_step(*selected);
    const Steps steps(snapshot, run_id);
    const std::size_t first = steps.first_ending_after(begin);
    if (first < steps.size() && steps[first].start_ns < end && fits(steps[first]))
        return of_step(steps[first]);
    return {0, AxisOrigin().text, "Times are relative to the start of the run, without pauses."};
}

TimeNs tick_step(TimeNs span, int marks) {
    const double wanted = static_cast<double>(std::max<TimeNs>(span, 1)) / std::max(marks, 1);
    double step = 1;
    while (step * 10 <= wanted) step *= 10;
    for (const double factor : {1.0, 2.0, 5.0, 10.0})
        if (step * factor >= wanted) return static_cast<TimeNs>(step * factor);
    return static_cast<TimeNs>(step * 10);
}

std::string offset_text(TimeNs offset, TimeNs step, TimeNs largest) {
    const double size = static_cast<double>(std::max(std::abs(largest), std::max<TimeNs>(step, 1)));
    const Unit* unit = units.data();
    for (const Unit& one : units)
        if (size >= one.ns) unit = &one;
    const double part = static_cast<double>(std::max<TimeNs>(step, 1)) / unit->ns;
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(part) - 1e-9)));
    if (offset == 0) return fmt::format("0 {}", unit->name);
    return fmt::format("{:+.{}f} {}", static_cast<double>(offset) / unit->ns, decimals, unit->name);
}

std::string three_digits(double value) {
    const double size = std::abs(value);
    return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

std::string duration_text(TimeNs ns) {
    const double value = static_cast<double>(ns), size = std::abs(value);
    if (size < 1e3) return fmt::format("{} ns", ns);
    if (size < 999.5e3) return three_digits(value * 1e-3) + " us";
    if (size < 999.5e6) return three_digits(value * 1e-6) + " ms";
    return three_digits(value * 1e-9) + " s";
}

const char* missing_in_lanes(const Snapshot& snapshot, RowId run_id) {
    const auto run = std::find_if(snapshot.runs.begin(), snapshot.runs.end(),
                                  [&](const RunRow& row) { return row.id == run_id; });
    if (run == snapshot.runs.end() || run->tier != "T1") return "";
    return "T1 records whole graphs: kernels launched without one, such as heads and top-k, are not in the "
           "GPU's lanes (T2 "
           "has them)";
}

std::shared_ptr<const RunLanes> run_lanes(const Snapshot& snapshot, RowId run_id) {
    auto lanes = snapshot.lanes_for(run_id);
    return lanes != nullptr ? lanes : std::make_shared<const RunLanes>();
}

std::size_t visible_blocks(const TimelineRow& row, const TimelineView& view,
                           std::vector<TimelineBlock>& out) {
    const double column_ns = view.ns_per_column();
    if (column_ns <= 0) return 0;
    std::size_t looked_at = 0;
    const auto to_column = [&](TimeNs t) {
        return static_cast<int>(std::floor(static_cast<double>(t - view.begin) / column_ns));
    };
    PhaseSums busy{}, before{}, after{};
    std::size_t summed_to = 0;  // `before` has the sums up to here; columns are contiguous
    std::size_t i = row.first_after(view.begin);
    while (i < row.size() && row.start(i) < view.end) {
        const double width = static_cast<double>(row.end(i) - row.start(i));
        if (width >= column_ns) {
            out.push_back({row.start(i), row.end(i), 0, 1, row.phase(i), static_cast<std::uint32_t>(i), 1});
            ++i;
            ++looked_at;
            continue;
        }
        const int column = to_column(row.start(i));
        auto next_column_start =
            view.begin + static_cast<TimeNs>(std::ceil(static_cast<double>(column + 1) * column_ns));
        // Corrects the rounding of the product: to_column() decides.
        while (to_column(next_column_start - 1) > column) --next_column_start;
        while (to_column(next_column_start) <= column) ++next_column_start;
        std::size_t j = row.first_starting(std::min(next_column_start, view.end), i);
        // Only the last interval that starts in the column can be wider than a column.
        if (j > i + 1 && static_cast<double>(row.end(j - 1) - row.start(j - 1)) >= column_ns) --j;
        j = std::max(j, i + 1);
        if (j - i <= 64) {
            looked_at += row.busy_by_phase(i, j, busy);
        } else {
            if (summed_to != i) looked_at += row.busy_before(i, before);
            looked_at += row.busy_before(j, after);
            for (std::size_t p = 0; p < busy.size(); ++p) busy[p] = after[p] - before[p];
            before = after;
            summed_to = j;
        }
        double total = 0;
        for (const TimeNs ns : busy) total += static_cast<double>(ns);
        const auto longest = static_cast<std::uint8_t>(std::ranges::max_element(busy) - busy.begin());
        out.push_back({row.start(i), row.end(j - 1), column, static_cast<std::uint32_t>(j - i),
                       total == 0 ? row.phase(i) : longest, static_cast<std::uint32_t>(i),
                       static_cast<float>(std::min(1.0, total / column_ns))});
        i = j;
    }
    return looked_at;
}

std::optional<std::size_t> interval_at(const TimelineRow& row, TimeNs t, TimeNs slack_ns) {
    const std::size_t at = row.first_after(t);
    if (at < row.size() && row.start(at) <= t) return at;
    const TimeNs after = at < row.size() ? row.start(at) - t : slack_ns + 1;
    const TimeNs before = at > 0 ? t - row.end(at - 1) : slack_ns + 1;
    if (std::min(after, before) > slack_ns) return std::nullopt;
    return after <= before ? at : at - 1;
}

TimelineView zoom_view(const TimelineView& view, double factor, double at, TimeNs min_span_ns) {
    const double span = static_cast<double>(view.end - view.begin);
    const double pivot = static_cast<double>(view.begin) + span * at;
    const double wanted = std::max(span * factor, static_cast<double>(std::max<TimeNs>(min_span_ns, 1)));
    TimelineView out = view;
    out.begin = static_cast<TimeNs>(std::llround(pivot - wanted * at));
    out.end = out.begin + std::max<TimeNs>(static_cast<TimeNs>(std::llround(wanted)), 1);
    return out;
}

std::optional<std::size_t> round_of_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                             const TimelineRow& row, std::size_t index) {
    const std::uint32_t source = row.source(index);
    if (lane.kind == LaneKind::nvtx) return std::nullopt;
    RowId step_id = 0;
    if (lane.kind == LaneKind::steps) {
        step_id = snapshot.steps[source].row.id;
    } else if (lane.kind == LaneKind::gpu) {
        step_id = snapshot.gpu_ops[source].step_id;
    } else if (const std::optional<SpanRow> span = snapshot.span(source)) {
        if (span->round_id != 0) return round_index(snapshot, span->round_id);
        step_id = span->step_id;
    }
    const std::size_t step =
        bisect(0, snapshot.steps.size(), [&](std::size_t i) { return snapshot.steps[i].row.id < step_id; });
    if (step == snapshot.steps.size() || snapshot.steps[step].row.id != step_id) return std::nullopt;
    const RowRange rounds = snapshot.steps[step].rounds;
    return rounds.count == 0 ? std::nullopt : std::optional<std::size_t>(rounds.first);
}

TimelineView follow_step(const TimelineView& view, ViewWidth width, std::pair<TimeNs, TimeNs> before,
                         std::pair<TimeNs, TimeNs> step, TimeNs end) {
    TimelineView out = view;
    if (width == ViewWidth::part && view.begin < before.second && view.end > before.first) {
        out.begin += step.first - before.first;
        out.end += step.first - before.first;
        return out;
    }
    constexpr double steps_at_first = 1.6, step_and_margin = 1.04;
    const auto first = static_cast<double>(step.first), last = static_cast<double>(step.second);
    const double length = std::max(last - first, 1.0);
    double span = static_cast<double>(view.end - view.begin);
    if (width == ViewWidth::steps)
        span = length * steps_at_first;
    else if (step.first >= view.begin && step.second <= view.end)
        return out;
    span = std::max(span, step_and_margin * length);
    // The newest step lies at the right edge.
    const double latest = std::max(static_cast<double>(end) + 0.03 * span, last);
    const double centre = std::min((first + last) / 2, latest - span / 2);
    out.begin = static_cast<TimeNs>(centre - span / 2);
    out.end = static_cast<TimeNs>(centre + span / 2);
    return out;
}

std::string level_name(int level) {
    return level == 0 ? std::string("catch-up") : fmt::format("level {}", level);
}

std::vector<std::string> describe_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                           const TimelineRow& row, std::size_t index, const FoldedAxis& axis,
                                           const AxisOrigin& origin) {
    const std::uint32_t source = row.source(index);
    const TimeNs start = row.start(index), length = row.end(index) - start;
    const TimeNs offset = axis.busy(origin.time, start), held = axis.paused(start, row.end(index));
    const std::string when =
        fmt::format("{}{}, at {} {}", duration_text(length - held),
                    held > 0 ? fmt::format(" (without {} of pauses)", duration_text(held)) : "",
                    offset_text(offset, length / 1000, offset), origin.text);
    if (lane.kind == LaneKind::steps) {
        const StepRow& step = snapshot.steps[source].row;
        std::vector<std::string> lines = {fmt::format("step {}", step.ordinal + 1), when};
        if (step.paused_ns > 0) lines.push_back(fmt::format("paused for {}", duration_text(step.paused_ns)));
        if (!step.time_counts())
            lines.push_back(fmt::format("excluded from statistics: {}", to_text(step.excluded)));
        return lines;
    }
    if (lane.kind == LaneKind::gpu) {
        const GpuOpRow& op = snapshot.gpu_ops[source];
        std::vector<std::string> lines = {op.name, when,
                                          fmt::format("phase {}", phase_name(row.phase(index)))};
        if (!op.grid.empty()) lines.push_back(fmt::format("grid {} block {}", op.grid, op.block));
        return lines;
    }
    if (lane.kind == LaneKind::nvtx) {
        const NvtxRangeRow& range = snapshot.nvtx_ranges[source];
        return {fmt::format("{} / {}", range.domain, range.name), when};
    }
    if (lane.kind == LaneKind::levels) return {level_name(row.level(index)), when};
    std::vector<std::string> lines = {std::string(phase_name(row.phase(index))), when};
    const std::optional<SpanRow> stored = snapshot.span(source);
    if (!stored) {
        lines.push_back("rows and bytes cannot be read: the file was moved or is damaged");
        return lines;
    }
    const SpanRow& span = *stored;
    const bool of_level = span.phase_id != static_cast<int>(Phase::verify);
    if (span.step_id != 0)
        lines.push_back((of_level ? fmt::format("level {}, ", span.level) : "") +
                        fmt::format("rows: {}", span.rows));
    if (span.bytes > 0 && length > 0)
        lines.push_back(fmt::format("{:.2f} MB, {:.1f} GB/s", static_cast<double>(span.bytes) * 1e-6,
                                    static_cast<double>(span.bytes) / static_cast<double>(length)));
    return lines;
}

}  // namespace draftscope
