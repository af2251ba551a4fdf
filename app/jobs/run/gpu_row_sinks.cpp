#include "app/jobs/run/gpu_row_sinks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace draftscope {

TierChoice open_tier(Tier requested, bool gpu_backend, GpuSession& session) {
    TierChoice out{requested, Tier::t0, ""};
    if (requested == Tier::t0) return out;
    if (!gpu_backend) {
        out.why = fmt::format(
            "{} traces GPU work, but this run uses the CPU: measured at T0, whose phase times are complete",
            to_text(requested));
        return out;
    }
    const CuptiProbe state = session.open(requested);
    if (state.state != CuptiState::ready) {
        out.why = fmt::format("{} needs CUPTI: {}; {}. Measured at T0", to_text(requested), state.text,
                              state.remedy.empty() ? "no remedy on this machine" : state.remedy);
        return out;
    }
    out.used = session.tier();
    return out;
}

void StepFinder::add(RowId id, TimeNs start_ns, TimeNs end_ns) {
    steps_.push_back({id, start_ns, end_ns});
}

std::optional<RowId> StepFinder::find(TimeNs launch_ns) const {
    const auto after = std::upper_bound(steps_.begin(), steps_.end(), launch_ns,
                                        [](TimeNs time, const Step& step) { return time < step.start_ns; });
    if (after != steps_.begin() && launch_ns <= std::prev(after)->end_ns) return std::prev(after)->id;
    const bool past_all = steps_.empty() || launch_ns > steps_.back().end_ns;
    if (past_all && !finished_) return std::nullopt;
    return 0;
}

GpuRowSink::GpuRowSink(RecordSink& next, GpuSession& session, RowIds& ids, RowId run_id, TimeNs run_start)
    : StepRowSink(next, run_id, run_start), session_(session), ids_(ids) {
    session_.begin_window();
}

void GpuRowSink::collect() {
    session_.take(ops_, calls_);
    std::vector<GpuOpRow> rows;
    std::vector<GpuOp> waiting;
    for (GpuOp& op : ops_) {
        const TimeNs launched = (op.launch_ns != 0 ? op.launch_ns : op.start_ns) - run_start_;
        const std::optional<RowId> step = steps_.find(launched);
        if (!step) {
            waiting.push_back(std::move(op));
            continue;
        }
        GpuOpRow row;
        row.id = ++ids_.gpu_op;
        row.run_id = run_id_;
        row.step_id = *step;
        row.phase_id = static_cast<int>(op.phase);
        row.stream = static_cast<int>(op.stream);
        row.name = std::move(op.name);
        row.start_ns = op.start_ns - run_start_;
        row.end_ns = op.end_ns - run_start_;
        row.graph_node_id = static_cast<std::int64_t>(op.graph_node);
        row.correlation_id = op.correlation;
        row.device = static_cast<int>(op.device);
        row.registers = op.registers;
        row.bytes = static_cast<std::int64_t>(op.bytes);
        if (op.kind == GpuOpKind::kernel) {
            row.grid = fmt::format("{},{},{}", op.grid[0], op.grid[1], op.grid[2]);
            row.block = fmt::format("{},{},{}", op.block[0], op.block[1], op.block[2]);
        }
        rows.push_back(std::move(row));
    }
    ops_ = std::move(waiting);
    if (!rows.empty()) next_.push(std::move(rows));
    std::vector<NvtxRangeRow> calls;
    for (const GpuCall& call : calls_)
        calls.push_back({run_id_, cuda_call_domain, call.name, static_cast<int>(call.thread_id),
                         call.start_ns - run_start_, call.end_ns - run_start_,
                         static_cast<std::int64_t>(call.correlation)});
    calls_.clear();
    if (!calls.empty()) next_.push(std::move(calls));
}

void GpuRowSink::push_losses() {
    const GpuLosses losses = session_.take_losses();
    push_loss("gpu_records_dropped", losses.dropped);
    push_loss("gpu_queue_full", losses.queue_full);
    push_loss("gpu_zero_timestamp", losses.zero_timestamps);
    push_loss("gpu_unattributed", losses.unattributed);
    push_loss("gpu_before_launch", losses.before_launch);
    push_loss("gpu_launches_forgotten", losses.launches_forgotten);
    if (losses.before_launch > 0)
        next_.push(CounterRow{run_id_, now(), "gpu_clock_error_ns",
                              static_cast<double>(losses.worst_before_launch_ns)});
}

void GpuRowSink::finish() {
    session_.end_window();
    steps_.finish();
    collect();
    push_losses();
}

}  // namespace draftscope
