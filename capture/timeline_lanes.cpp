#include "capture/timeline_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>
#include <tuple>

#include "base/phase.h"

namespace draftscope {
namespace {

constexpr std::uint8_t phase_mask = 31;
constexpr TimeNs max_narrow = std::numeric_limits<std::uint32_t>::max();
constexpr int first_draft_phase = static_cast<int>(Phase::backbone),
              last_draft_phase = static_cast<int>(Phase::remap);

bool is_draft(const SpanRow& span) {
    return span.phase_id >= first_draft_phase && span.phase_id <= last_draft_phase;
}

/// Returns the first number below `count` for which `holds` is false; `holds` must be true up to that number.
template <typename Holds>
std::size_t first_where_false(std::size_t count, Holds holds) {
    const auto all = std::views::iota(std::size_t{0}, count);
    return static_cast<std::size_t>(std::ranges::partition_point(all, holds) - all.begin());
}

}  // namespace

template <typename Time>
void TimelineRow::write_times(Times<Time>& times, std::size_t at, TimeNs start, TimeNs length,
                              std::uint8_t phase) {
    const Chunk& chunk = *chunks_.back();
    if (at % block == 0)
        for (std::size_t p = 0; p < running_.size(); ++p)
            times.sums[at / block][p] = static_cast<Time>(running_[p] - chunk.before[p]);
    times.start[at] = static_cast<Time>(start - chunk.base);
    times.length[at] = static_cast<Time>(length);
    running_[phase] += length;
}

void TimelineRow::append(TimeNs start, TimeNs end, std::uint8_t phase, std::uint32_t source, int level) {
    const std::size_t at = size_ % chunk_rows;
    if (at == 0) {
        chunks_.push_back(std::make_shared<Chunk>(start));
        chunks_.back()->before = running_;
        chunks_.back()->narrow.reset(new Times<std::uint32_t>);
        last_start_.push_back(start);
        last_end_.push_back(end);
    }
    phase &= phase_mask;
    // The sums of a chunk are below its last start plus one length, so they fit if these two do.
    if (chunks_.back()->narrow && std::max(start - chunks_.back()->base, end - start) > max_narrow / 2)
        chunks_.back() = copy_prefix(*chunks_.back(), at, false);
    Chunk& chunk = *chunks_.back();
    chunk.with_times([&](auto& times) { write_times(times, at, start, end - start, phase); });
    chunk.phase[at] = phase;
    chunk.level[at] = static_cast<std::uint8_t>(std::clamp(level, 0, 255));
    chunk.source[at] = source;
    last_start_.back() = start;
    last_end_.back() = end;
    ++size_;
}

/// Copies the first `rows` rows of a chunk, so that views of it don't see later changes.
std::shared_ptr<TimelineRow::Chunk> TimelineRow::copy_prefix(const Chunk& from, std::size_t rows,
                                                             bool narrow) {
    auto chunk = std::make_shared<Chunk>(from.base);
    chunk->before = from.before;
    const auto n = static_cast<std::ptrdiff_t>(rows);
    std::copy_n(from.source.begin(), n, chunk->source.begin());
    std::copy_n(from.phase.begin(), n, chunk->phase.begin());
    std::copy_n(from.level.begin(), n, chunk->level.begin());
    const auto copy_times = [&](const auto& source, auto& target) {
        std::copy_n(source.start.begin(), n, target.start.begin());
        std::copy_n(source.length.begin(), n, target.length.begin());
        for (std::size_t b = 0; b * block < rows; ++b)
            std::copy(source.sums[b].begin(), source.sums[b].end(), target.sums[b].begin());
    };
    if (narrow) {
        chunk->narrow.reset(new Times<std::uint32_t>);
        copy_times(*from.narrow, *chunk->narrow);
    } else {
        chunk->wide.reset(new Times<TimeNs>);
        from.with_times([&](const auto& times) { copy_times(times, *chunk->wide); });
    }
    return chunk;
}

void TimelineRow::keep_first(std::size_t count) {
    if (count >= size_) return;
    PhaseSums kept;
    busy_before(count, kept);
    running_ = kept;
    const std::size_t chunks = (count + chunk_rows - 1) / chunk_rows;
    chunks_.resize(chunks);
    last_start_.resize(chunks);
    last_end_.resize(chunks);
    size_ = count;
    if (count == 0) return;
    last_start_.back() = start(count - 1);
    last_end_.back() = end(count - 1);
    if (count % chunk_rows != 0)
        chunks_.back() =
            copy_prefix(*chunks_.back(), count % chunk_rows, static_cast<bool>(chunks_.back()->narrow));
}

std::size_t TimelineRow::first_after(TimeNs t) const {
    const auto p =
        static_cast<std::size_t>(std::upper_bound(last_end_.begin(), last_end_.end(), t) - last_end_.begin());
    if (p == chunks_.size()) return size_;
    const Chunk& chunk = *chunks_[p];
    return p * chunk_rows + first_where_false(std::min(chunk_rows, size_ - p * chunk_rows),
                                              [&](std::size_t i) { return chunk.end(i) <= t; });
}

std::size_t TimelineRow::first_starting(TimeNs t, std::size_t from) const {
    const auto first = last_start_.begin() + static_cast<std::ptrdiff_t>(std::min(from, size_) / chunk_rows);
    const auto p =
        static_cast<std::size_t>(std::lower_bound(first, last_start_.end(), t) - last_start_.begin());
    if (p >= chunks_.size()) return size_;
    const Chunk& chunk = *chunks_[p];
    const std::size_t inside = first_where_false(std::min(chunk_rows, size_ - p * chunk_rows),
                                                 [&](std::size_t i) { return chunk.start(i) < t; });
    return std::max(from, p * chunk_rows + inside);
}

std::size_t TimelineRow::busy_before(std::size_t count, PhaseSums& out) const {
    if (count >= size_) {
        out = running_;
        return 0;
    }
    const Chunk& last = chunk(count);
    const std::size_t rows = count % chunk_rows, whole = rows / block * block;
    last.with_times([&](const auto& times) {
        for (std::size_t p = 0; p < out.size(); ++p)
            out[p] = last.before[p] + static_cast<TimeNs>(times.sums[rows / block][p]);
        for (std::size_t i = whole; i < rows; ++i) out[last.phase[i]] += static_cast<TimeNs>(times.length[i]);
    });
    return rows - whole;
}

std::size_t TimelineRow::busy_by_phase(std::size_t first, std::size_t last, PhaseSums& out) const {
    out.fill(0);
    if (last <= first) return 0;
    if (last - first <= block) {
        for (std::size_t i = first; i < last; ++i) out[phase(i)] += chunk(i).length(i % chunk_rows);
        return last - first;
    }
    PhaseSums before;
    const std::size_t looked_at = busy_before(first, before) + busy_before(last, out);
    for (std::size_t p = 0; p < out.size(); ++p) out[p] -= before[p];
    return looked_at;
}

TimelineLane& LaneBuilder::lane(LaneKind kind, int key, int sub_key, const std::string& name) {
    for (TimelineLane& lane : lanes_.lanes)
        if (lane.kind == kind && lane.key == key && lane.sub_key == sub_key &&
            (kind != LaneKind::nvtx || lane.name == name))
            return lane;
    TimelineLane made{kind, name, key, sub_key, {}};
    if (kind == LaneKind::cpu)
        made.name = key == 0 ? "main thread" : key == 1 ? "side thread" : fmt::format("lane {}", key);
    if (kind == LaneKind::gpu) made.name = fmt::format("stream {}", key);
    const auto before = [](const TimelineLane& a, const TimelineLane& b) {
        if (a.kind != b.kind) return a.kind < b.kind;
        if (a.key != b.key) return a.key < b.key;
        return a.sub_key < b.sub_key;
    };
    const auto at = std::upper_bound(lanes_.lanes.begin(), lanes_.lanes.end(), made, before);
    return *lanes_.lanes.insert(at, std::move(made));
}

/// Sorts by start. Of items with the same start, the longest comes first, so that it becomes the parent.
void LaneBuilder::sort_outer_first(std::vector<Item>& items) {
    const auto before = [](const Item& a, const Item& b) {
        return a.start != b.start ? a.start < b.start : a.end > b.end;
    };
    if (!std::is_sorted(items.begin(), items.end(), before))
        std::stable_sort(items.begin(), items.end(), before);
}

/// Nests items, sorted outer first: an item goes below the last item that has not ended at its start.
void LaneBuilder::place(TimelineLane& lane, const std::vector<Item>& items) {
    std::vector<TimeNs> ends;  // of the last interval of each row
    for (const TimelineRow& row : lane.rows)
        ends.push_back(row.size() > 0 ? row.end(row.size() - 1) : std::numeric_limits<TimeNs>::min());
    for (const Item& item : items) {
        std::size_t depth = ends.size();
        while (depth > 0 && ends[depth - 1] <= item.start) --depth;
        if (depth == lane.rows.size()) {
            lane.rows.emplace_back();
            ends.push_back(0);
        }
        ends[depth] = std::max(item.end, item.start);
        lane.rows[depth].append(item.start, ends[depth], item.phase, item.source, item.level);
    }
    while (!lane.rows.empty() && lane.rows.back().size() == 0) lane.rows.pop_back();
}

/// Adds `items` to the lane and sorts them.
void LaneBuilder::add(TimelineLane& lane, std::vector<Item>& items) {
    if (items.empty()) return;
    view_.reset();
    for (const Item& item : items) {
        if (lanes_.end == lanes_.begin) lanes_.begin = lanes_.end = item.start;
        lanes_.begin = std::min(lanes_.begin, item.start);
        lanes_.end = std::max(lanes_.end, item.end);
    }
    sort_outer_first(items);
    // The row of an interval depends only on the intervals before it. Intervals that start before the first
    // new one keep their rows.
    const TimeNs cut = items.front().start;
    const std::size_t fresh = items.size();
    for (TimelineRow& row : lane.rows) {
        if (row.size() == 0 || row.start(row.size() - 1) < cut) continue;
        const std::size_t kept = row.first_starting(cut, 0);
        for (std::size_t i = kept; i < row.size(); ++i)
            items.push_back({row.start(i), row.end(i), row.source(i), row.phase(i), row.level(i)});
        row.keep_first(kept);
    }
    if (items.size() > fresh) sort_outer_first(items);
    place(lane, items);
}

void LaneBuilder::add_step(const StepRow& step, std::uint32_t source) {
    items_.assign(1, {step.start_ns, step.end_ns, source, 0, 0});
    add(lane(LaneKind::steps, 0, 0, "steps"), items_);
}

/// Merges neighbouring draft spans of one step and level into one interval. `order` indexes `spans`: the
/// spans of one thread of the critical lane, by time.
void LaneBuilder::add_levels(std::span<const SpanRow> spans, const std::vector<std::uint32_t>& order,
                             std::span<const std::uint32_t> sources) {
    items_.clear();
    const SpanRow* last = nullptr;
    for (const std::uint32_t i : order) {
        const SpanRow& span = spans[i];
        if (!is_draft(span) || span.step_id == 0) {
            if (span.phase_id > last_draft_phase) last = nullptr;
            continue;
        }
        if (last != nullptr && last->step_id == span.step_id && last->level == span.level)
            items_.back().end = std::max(items_.back().end, span.end_ns);
        else
            items_.push_back({span.start_ns, span.end_ns, sources[i], 0, span.level});
        last = &span;
    }
    if (!items_.empty()) add(lane(LaneKind::levels, 0, 0, "levels"), items_);
}

void LaneBuilder::add_spans(std::span<const SpanRow> spans, std::span<const std::uint32_t> sources) {
    const auto line_before = [&](std::uint32_t x, std::uint32_t y) {
        const SpanRow &a = spans[x], &b = spans[y];
        if (a.lane != b.lane) return a.lane < b.lane;
        if (a.thread_id != b.thread_id) return a.thread_id < b.thread_id;
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
    };
    std::vector<std::uint32_t> all(spans.size());
    std::iota(all.begin(), all.end(), 0u);
    if (!std::is_sorted(all.begin(), all.end(), line_before))
        std::stable_sort(all.begin(), all.end(), line_before);
    for (std::size_t first = 0; first < all.size();) {
        const SpanRow& head = spans[all[first]];
        order_.clear();
        std::size_t end = first;
        for (; end < all.size() && spans[all[end]].lane == head.lane &&
               spans[all[end]].thread_id == head.thread_id;
             ++end)
            order_.push_back(all[end]);
        if (head.lane == 0) add_levels(spans, order_, sources);
        items_.clear();
        for (const std::uint32_t i : order_)
            items_.push_back({spans[i].start_ns, spans[i].end_ns, sources[i],
                              static_cast<std::uint8_t>(spans[i].phase_id), spans[i].level});
        add(lane(LaneKind::cpu, head.lane, head.thread_id, ""), items_);
        first = end;
    }
}

void LaneBuilder::add_gpu_ops(std::span<const GpuOpRow> ops, std::uint32_t first) {
    std::vector<int> streams;
    for (const GpuOpRow& op : ops)
        if (std::find(streams.begin(), streams.end(), op.stream) == streams.end())
            streams.push_back(op.stream);
    for (const int stream : streams) {
        items_.clear();
        for (std::size_t i = 0; i < ops.size(); ++i)
            if (ops[i].stream == stream)
                items_.push_back({ops[i].start_ns, ops[i].end_ns, first + static_cast<std::uint32_t>(i),
                                  static_cast<std::uint8_t>(ops[i].phase_id), 0});
        add(lane(LaneKind::gpu, stream, 0, ""), items_);
    }
}

void LaneBuilder::add_nvtx_ranges(std::span<const NvtxRangeRow> ranges, std::uint32_t first) {
    std::vector<std::uint32_t> order(ranges.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto key = [&](std::uint32_t i) { return std::tie(ranges[i].domain, ranges[i].thread_id); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    for (std::size_t at = 0; at < order.size();) {
        const NvtxRangeRow& head = ranges[order[at]];
        items_.clear();
        for (; at < order.size() && key(order[at]) == std::tie(head.domain, head.thread_id); ++at) {
            const NvtxRangeRow& range = ranges[order[at]];
            items_.push_back({range.start_ns, range.end_ns, first + order[at], 0, 0});
        }
        add(lane(LaneKind::nvtx, 0, head.thread_id, head.domain), items_);
    }
}

std::shared_ptr<const RunLanes> LaneBuilder::view() const {
    if (view_ == nullptr) view_ = std::make_shared<const RunLanes>(lanes_);
    return view_;
}

}  // namespace draftscope
