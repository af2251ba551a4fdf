#include "app/gui/models/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "capture/phase_names.h"

namespace draftscope {
namespace {

constexpr std::uint8_t no_phase = 0;
constexpr std::uint8_t phase_mask = 31;
constexpr int first_draft_phase = 2, last_draft_phase = 8;  // backbone .. remap

template <typename View, typename Id>
std::optional<std::size_t> find_by_id(const View& view, RowId id, Id id_of) {
    std::size_t low = 0, high = view.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (id_of(view[middle]) < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < view.size() && id_of(view[low]) == id) return low;
    return std::nullopt;
}

std::string_view phase_name(std::uint8_t phase) {
    return phase < phase_rows.size() ? phase_rows[phase].name : std::string_view("unknown");
}

}  // namespace

void TimelineRow::append(TimeNs start, TimeNs end, std::uint8_t phase, std::uint32_t source) {
    const std::size_t at = size_ % piece_rows;
    if (at == 0) {
        pieces_.emplace_back();
        last_start_.push_back(start);
        last_end_.push_back(end);
    }
    Piece& piece = pieces_.back();
    if (at % block == 0) piece.sums[at / block] = running_;
    piece.start[at] = last_start_.back() = start;
    piece.end[at] = last_end_.back() = end;
    piece.phase[at] = phase & phase_mask;
    piece.source[at] = source;
    running_[phase & phase_mask] += end - start;
    ++size_;
}

void TimelineRow::clear() {
    *this = TimelineRow();
}

std::size_t TimelineRow::first_after(TimeNs t) const {
    const auto p =
        static_cast<std::size_t>(std::upper_bound(last_end_.begin(), last_end_.end(), t) - last_end_.begin());
    if (p == pieces_.size()) return size_;
    const TimeNs* ends = pieces_[p].end.data();
    const std::size_t rows = std::min(piece_rows, size_ - p * piece_rows);
    return p * piece_rows + static_cast<std::size_t>(std::upper_bound(ends, ends + rows, t) - ends);
}

std::size_t TimelineRow::first_starting(TimeNs t, std::size_t from) const {
    const auto first = last_start_.begin() + static_cast<std::ptrdiff_t>(std::min(from, size_) / piece_rows);
    const auto p =
        static_cast<std::size_t>(std::lower_bound(first, last_start_.end(), t) - last_start_.begin());
    if (p >= pieces_.size()) return size_;
    const TimeNs* starts = pieces_[p].start.data();
    const std::size_t rows = std::min(piece_rows, size_ - p * piece_rows);
    return std::max(
        from, p * piece_rows + static_cast<std::size_t>(std::lower_bound(starts, starts + rows, t) - starts));
}

std::size_t TimelineRow::busy_before(std::size_t count, PhaseSums& out) const {
    if (count >= size_) {
        out = running_;
        return 0;
    }
    const Piece& last = piece(count);
    const std::size_t rows = count % piece_rows, whole = rows / block * block;
    out = last.sums[rows / block];
    for (std::size_t i = whole; i < rows; ++i) out[last.phase[i]] += last.end[i] - last.start[i];
    return rows - whole;
}

std::size_t TimelineRow::busy_by_phase(std::size_t first, std::size_t last, PhaseSums& out) const {
    out.fill(0);
    if (last <= first) return 0;
    if (last - first <= block) {
        for (std::size_t i = first; i < last; ++i) out[phase(i)] += end(i) - start(i);
        return last - first;
    }
    PhaseSums before;
    const std::size_t looked_at = busy_before(first, before) + busy_before(last, out);
    for (std::size_t p = 0; p < out.size(); ++p) out[p] -= before[p];
    return looked_at;
}

TimelineIndex::Pending& TimelineIndex::pending(std::vector<Pending>& all, LaneKind kind, int key, int sub_key,
                                               const char* name) {
    for (Pending& batch : all)
        if (batch.kind == kind && batch.key == key && batch.sub_key == sub_key &&
            (kind != LaneKind::nvtx || batch.name == name))
            return batch;
    all.push_back({kind, key, sub_key, name, {}});
    return all.back();
}

void TimelineIndex::collect(const Snapshot& snapshot, std::vector<Pending>& out) {
    for (; steps_seen_ < snapshot.steps.size(); ++steps_seen_) {
        const StepRow& step = snapshot.steps[steps_seen_].row;
        if (step.run_id != run_id_) continue;
        pending(out, LaneKind::steps, 0, 0, "steps")
            .items.push_back({step.start_ns, step.end_ns, no_phase, static_cast<std::uint32_t>(steps_seen_)});
    }
    for (; spans_seen_ < snapshot.spans.size(); ++spans_seen_) {
        const SpanRow& span = snapshot.spans[spans_seen_];
        if (span.run_id != run_id_) continue;
        pending(out, LaneKind::cpu, span.lane, span.thread_id, "")
            .items.push_back({span.start_ns, span.end_ns, static_cast<std::uint8_t>(span.phase_id),
                              static_cast<std::uint32_t>(spans_seen_)});
    }
    for (; gpu_seen_ < snapshot.gpu_ops.size(); ++gpu_seen_) {
        const GpuOpRow& op = snapshot.gpu_ops[gpu_seen_];
        if (op.run_id != run_id_) continue;
        pending(out, LaneKind::gpu, op.stream, 0, "")
            .items.push_back({op.start_ns, op.end_ns, static_cast<std::uint8_t>(op.phase_id),
                              static_cast<std::uint32_t>(gpu_seen_)});
    }
    for (; nvtx_seen_ < snapshot.nvtx_ranges.size(); ++nvtx_seen_) {
        const NvtxRangeRow& range = snapshot.nvtx_ranges[nvtx_seen_];
        if (range.run_id != run_id_) continue;
        pending(out, LaneKind::nvtx, 0, range.thread_id, range.domain.c_str())
            .items.push_back(
                {range.start_ns, range.end_ns, no_phase, static_cast<std::uint32_t>(nvtx_seen_)});
    }
}

/// By start; of those that start together the longest first, so that it becomes the parent.
void TimelineIndex::sort_outer_first(std::vector<Item>& items) {
    const auto before = [](const Item& a, const Item& b) {
        return a.start != b.start ? a.start < b.start : a.end > b.end;
    };
    if (!std::is_sorted(items.begin(), items.end(), before))
        std::stable_sort(items.begin(), items.end(), before);
}

/// Neighbouring draft spans of one step and level become one interval.
void TimelineIndex::collect_levels(const Snapshot& snapshot, std::vector<Pending>& out) {
    Pending levels{LaneKind::levels, 0, 0, "levels", {}};
    for (const Pending& batch : out) {
        if (batch.kind != LaneKind::cpu || batch.key != 0) continue;
        const SpanRow* last = nullptr;
        for (const Item& item : batch.items) {
            const SpanRow& span = snapshot.spans[item.source];
            const bool draft = span.phase_id >= first_draft_phase && span.phase_id <= last_draft_phase;
            if (!draft || span.step_id == 0) {
                if (span.phase_id > last_draft_phase) last = nullptr;
                continue;
            }
            if (last != nullptr && last->step_id == span.step_id && last->level == span.level)
                levels.items.back().end = std::max(levels.items.back().end, item.end);
            else
                levels.items.push_back({item.start, item.end, no_phase, item.source});
            last = &span;
        }
    }
    if (!levels.items.empty()) out.push_back(std::move(levels));
}

TimelineLane& TimelineIndex::lane_for(const Pending& batch) {
    for (TimelineLane& lane : lanes_)
        if (lane.kind == batch.kind && lane.key == batch.key && lane.sub_key == batch.sub_key &&
            (batch.kind != LaneKind::nvtx || lane.name == batch.name))
            return lane;
    TimelineLane lane{batch.kind, batch.name, batch.key, batch.sub_key, {}};
    if (batch.kind == LaneKind::cpu)
        lane.name = batch.key == 0 ? "critical" : batch.key == 1 ? "side" : fmt::format("lane {}", batch.key);
    if (batch.kind == LaneKind::gpu) lane.name = fmt::format("stream {}", batch.key);
    const auto before = [](const TimelineLane& a, const TimelineLane& b) {
        if (a.kind != b.kind) return a.kind < b.kind;
        if (a.key != b.key) return a.key < b.key;
        return a.sub_key < b.sub_key;
    };
    const auto place_at = std::upper_bound(lanes_.begin(), lanes_.end(), lane, before);
    return *lanes_.insert(place_at, std::move(lane));
}

/// Nests by interval (items sorted outer first): an item goes below the last one that has not ended when it
/// starts.
void TimelineIndex::place(TimelineLane& lane, const std::vector<Item>& items) {
    for (const Item& item : items) {
        std::size_t depth = 0;
        for (std::size_t d = lane.rows.size(); d-- > 0;) {
            const TimelineRow& row = lane.rows[d];
            if (row.size() > 0 && row.end(row.size() - 1) > item.start) {
                depth = d + 1;
                break;
            }
        }
        if (depth == lane.rows.size()) lane.rows.emplace_back();
        lane.rows[depth].append(item.start, std::max(item.end, item.start), item.phase, item.source);
    }
}

void TimelineIndex::add(TimelineLane& lane, std::vector<Item> items) {
    TimeNs newest = std::numeric_limits<TimeNs>::min();
    for (const TimelineRow& row : lane.rows)
        if (row.size() > 0) newest = std::max(newest, row.start(row.size() - 1));
    const bool late =
        std::any_of(items.begin(), items.end(), [&](const Item& item) { return item.start <= newest; });
    if (late) {
        for (const TimelineRow& row : lane.rows)
            for (std::size_t i = 0; i < row.size(); ++i)
                items.push_back({row.start(i), row.end(i), row.phase(i), row.source(i)});
        lane.rows.clear();
        sort_outer_first(items);
    }
    place(lane, items);
}

void TimelineIndex::update(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    const TimeNs started = run == nullptr ? 0 : run->started_monotonic;
    if (run_id != run_id_ || started != started_ || snapshot.source != source_ ||
        snapshot.spans.size() < spans_seen_ || snapshot.steps.size() < steps_seen_) {
        const std::uint64_t revision = revision_;
        *this = TimelineIndex();
        run_id_ = run_id;
        source_ = snapshot.source;
        started_ = started;
        revision_ = revision + 1;
    }
    std::vector<Pending> batches;
    collect(snapshot, batches);
    for (Pending& batch : batches) sort_outer_first(batch.items);
    collect_levels(snapshot, batches);
    for (Pending& batch : batches) {
        for (const Item& item : batch.items) {
            if (end_ == begin_) {
                begin_ = item.start;
                end_ = item.start;
            }
            begin_ = std::min(begin_, item.start);
            end_ = std::max(end_, item.end);
        }
        add(lane_for(batch), std::move(batch.items));
        ++revision_;
    }
}

std::size_t visible_blocks(const TimelineRow& row, const TimelineView& view,
                           std::vector<TimelineBlock>& out) {
    const double column_ns = view.ns_per_column();
    if (column_ns <= 0) return 0;
    std::size_t looked_at = 0;
    const auto column_of = [&](TimeNs t) {
        return static_cast<int>(std::floor(static_cast<double>(t - view.begin) / column_ns));
    };
    PhaseSums busy{}, before{}, after{};
    std::size_t summed_to = 0;  // `before` has the sums up to here: where one column ends the next begins
    std::size_t i = row.first_after(view.begin);
    while (i < row.size() && row.start(i) < view.end) {
        const double width = static_cast<double>(row.end(i) - row.start(i));
        if (width >= column_ns) {
            out.push_back({row.start(i), row.end(i), 0, 1, row.phase(i), static_cast<std::uint32_t>(i), 1});
            ++i;
            ++looked_at;
            continue;
        }
        const int column = column_of(row.start(i));
        auto next_column_start =
            view.begin + static_cast<TimeNs>(std::ceil(static_cast<double>(column + 1) * column_ns));
        // The product rounds; the column of a time is what counts.
        while (column_of(next_column_start - 1) > column) --next_column_start;
        while (column_of(next_column_start) <= column) ++next_column_start;
        std::size_t j = row.first_starting(std::min(next_column_start, view.end), i);
        // At most the last one that starts in the column can be wide enough to stand alone.
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

TimelineView zoom_view(const TimelineView& view, double factor, double at, TimeNs least_span_ns) {
    const double span = static_cast<double>(view.end - view.begin);
    const double pivot = static_cast<double>(view.begin) + span * at;
    const double wanted = std::max(span * factor, static_cast<double>(std::max<TimeNs>(least_span_ns, 1)));
    TimelineView out = view;
    out.begin = static_cast<TimeNs>(std::llround(pivot - wanted * at));
    out.end = out.begin + std::max<TimeNs>(static_cast<TimeNs>(std::llround(wanted)), 1);
    return out;
}

TimeNs tick_step(TimeNs span, int marks) {
    const double wanted = static_cast<double>(std::max<TimeNs>(span, 1)) / std::max(marks, 1);
    double step = 1;
    while (step * 10 <= wanted) step *= 10;
    for (const double factor : {1.0, 2.0, 5.0, 10.0})
        if (step * factor >= wanted) return static_cast<TimeNs>(step * factor);
    return static_cast<TimeNs>(step * 10);
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

std::optional<std::size_t> find_step(const Snapshot& snapshot, RowId step_id) {
    return find_by_id(snapshot.steps, step_id, [](const StepEntry& entry) { return entry.row.id; });
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
            step_id = snapshot.spans[source].step_id;
            round_id = snapshot.spans[source].round_id;
            break;
        case LaneKind::gpu:
            step_id = snapshot.gpu_ops[source].step_id;
            break;
        case LaneKind::nvtx:
            return std::nullopt;
    }
    if (round_id != 0)
        return find_by_id(snapshot.rounds, round_id, [](const RoundEntry& entry) { return entry.row.id; });
    const std::optional<std::size_t> step = find_step(snapshot, step_id);
    if (!step || snapshot.steps[*step].rounds.count == 0) return std::nullopt;
    return snapshot.steps[*step].rounds.first;
}

std::string level_name(int level) {
    return level == 0 ? std::string("catch-up") : fmt::format("level {}", level);
}

std::vector<std::string> describe_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                           const TimelineRow& row, std::size_t index) {
    const std::uint32_t source = row.source(index);
    const TimeNs length = row.end(index) - row.start(index);
    const std::string when =
        fmt::format("{} from {}", duration_text(length), duration_text(row.start(index)));
    if (lane.kind == LaneKind::steps) {
        const StepRow& step = snapshot.steps[source].row;
        std::vector<std::string> lines = {fmt::format("step {}", step.ordinal + 1), when};
        if (step.paused_ns > 0) lines.push_back(fmt::format("paused for {}", duration_text(step.paused_ns)));
        if (step.excluded != Excluded::no)
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
    const SpanRow& span = snapshot.spans[source];
    if (lane.kind == LaneKind::levels) return {level_name(span.level), when};
    std::vector<std::string> lines = {std::string(phase_name(row.phase(index))), when};
    if (span.step_id != 0) lines.push_back(fmt::format("level {}, {} rows", span.level, span.rows));
    if (span.bytes > 0 && length > 0)
        lines.push_back(fmt::format("{:.2f} MB, {:.1f} GB/s", static_cast<double>(span.bytes) * 1e-6,
                                    static_cast<double>(span.bytes) / static_cast<double>(length)));
    return lines;
}

}  // namespace draftscope
