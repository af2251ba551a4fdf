#include "app/gui/models/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bisect.h"
#include "base/phase_names.h"
#include "capture/queries.h"

namespace draftscope {
namespace {

std::string_view phase_name(std::uint8_t phase) {
    return phase < phase_rows.size() ? phase_rows[phase].name : std::string_view("unknown");
}

}  // namespace

void TimelineIndex::update(const Snapshot& snapshot, RowId run_id) {
    run_ = snapshot.lanes_for(run_id);
    if (run_ == nullptr) run_ = std::make_shared<const RunLanes>();
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
        TimelineBlock block{row.start(i),
                            row.end(j - 1),
                            column,
                            static_cast<std::uint32_t>(j - i),
                            row.phase(i),
                            static_cast<std::uint32_t>(i),
                            1};
        block.phase = static_cast<std::uint8_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
        double total = 0;
        for (const TimeNs ns : busy) total += static_cast<double>(ns);
        if (total == 0) block.phase = row.phase(i);
        block.density = static_cast<float>(std::min(1.0, total / column_ns));
        out.push_back(block);
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

std::optional<std::size_t> find_step(const Snapshot& snapshot, RowId step_id) {
    const std::size_t at =
        bisect(0, snapshot.steps.size(), [&](std::size_t i) { return snapshot.steps[i].row.id < step_id; });
    if (at == snapshot.steps.size() || snapshot.steps[at].row.id != step_id) return std::nullopt;
    return at;
}

std::optional<std::size_t> round_of_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                             const TimelineRow& row, std::size_t index) {
    const std::uint32_t source = row.source(index);
    RowId step_id = 0, round_id = 0;
    switch (lane.kind) {
        case LaneKind::steps:
            step_id = snapshot.steps[source].row.id;
            break;
        case LaneKind::levels:
        case LaneKind::cpu:
            if (const std::optional<SpanRow> span = snapshot.span(source)) {
                step_id = span->step_id;
                round_id = span->round_id;
            }
            break;
        case LaneKind::gpu:
            step_id = snapshot.gpu_ops[source].step_id;
            break;
        case LaneKind::nvtx:
            return std::nullopt;
    }
    if (round_id != 0) return round_index(snapshot, round_id);
    const std::optional<std::size_t> step = find_step(snapshot, step_id);
    if (!step || snapshot.steps[*step].rounds.count == 0) return std::nullopt;
    return snapshot.steps[*step].rounds.first;
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
    if (span.step_id != 0) lines.push_back(fmt::format("level {}, rows: {}", span.level, span.rows));
    if (span.bytes > 0 && length > 0)
        lines.push_back(fmt::format("{:.2f} MB, {:.1f} GB/s", static_cast<double>(span.bytes) * 1e-6,
                                    static_cast<double>(span.bytes) / static_cast<double>(length)));
    return lines;
}

}  // namespace draftscope
