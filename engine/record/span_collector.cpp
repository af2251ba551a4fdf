#include "engine/record/span_collector.h"

#include <algorithm>
#include <span>

namespace draftscope {
namespace {

bool is_head_work(Phase phase) {
    return phase == Phase::router || phase == Phase::head || phase == Phase::topk || phase == Phase::gather;
}

}  // namespace

void SpanCollector::clear() {
    collect();
    events_.clear();
}

TimeNs SpanCollector::head_ns(std::size_t first) const {
    TimeNs sum = 0;
    for (const SpanEvent& event : std::span(events_).subspan(first)) {
        if (event.depth != 0 || event.lane != Lane::critical || !is_head_work(event.phase)) continue;
        sum += to_run_time(event.end_ticks) - to_run_time(event.start_ticks);
    }
    return sum;
}

std::vector<SpanRow> SpanCollector::rows(RowId run_id, RowId step_id, RowId round_id) const {
    std::vector<SpanRow> rows;
    rows.reserve(events_.size());
    for (const SpanEvent& event : events_) {
        SpanRow row;
        row.run_id = run_id;
        row.step_id = step_id;
        row.round_id = round_id;
        row.phase_id = static_cast<int>(event.phase);
        row.level = event.level;
        row.lane = static_cast<int>(event.lane);
        row.thread_id = static_cast<int>(recorder_.thread_id()) + event.worker;
        row.start_ns = to_run_time(event.start_ticks);
        row.end_ns = to_run_time(event.end_ticks);
        row.rows = event.rows;
        row.bytes = static_cast<std::int64_t>(event.bytes);
        row.nesting = event.depth;
        rows.push_back(row);
    }
    // Events are ordered by their end, so insertion sort moves each span only past its children.
    const auto before = [](const SpanRow& a, const SpanRow& b) {
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.nesting < b.nesting;
    };
    for (auto row = rows.begin(); row != rows.end(); ++row)
        std::rotate(std::upper_bound(rows.begin(), row, *row, before), row, row + 1);
    return rows;
}

}  // namespace draftscope
