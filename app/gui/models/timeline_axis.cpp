#include "app/gui/models/timeline_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/bisect.h"

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
        TimeNs net = default_step;
        if (step_of[i]) {
            const StepRow& step = steps[*step_of[i]];
            net = std::max<TimeNs>(step.busy_ns(), 1);
        }
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
        const TimeNs length = step.busy_ns();
        return length > axis.busy(begin, end) / max_steps_in_view;
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

std::string duration_text(TimeNs ns) {
    const double value = static_cast<double>(ns), size = std::abs(value);
    if (size < 1e3) return fmt::format("{} ns", ns);
    const auto scaled = [](double v, const char* unit) {
        const double a = std::abs(v);
        return fmt::format("{:.{}f} {}", v, a < 9.995 ? 2 : a < 99.95 ? 1 : 0, unit);
    };
    if (size < 999.5e3) return scaled(value * 1e-3, "us");
    if (size < 999.5e6) return scaled(value * 1e-6, "ms");
    return scaled(value * 1e-9, "s");
}

}  // namespace draftscope
