#include "app/jobs/run/run_telemetry.h"

#include <unistd.h>

namespace draftscope {
namespace {

/// Ranges of this domain mirror our phases, which the capture already contains as spans.
constexpr std::string_view draftscope_domain = "draftscope";

/// Returns whether phases are mirrored to NVTX: for an external tool or another capture in this process, not
/// for our own. Call before an NvtxRowSink starts its capture.
bool mirror_is_read(const NvtxMirror& mirror) {
    return mirror.attached() && (nvtx_tool_listens() || nvtx_capturing());
}

bool is_traced(const RunRow& row) {
    return row.tier != to_text(Tier::t0);
}

}  // namespace

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
    push_loss("gpu_wrong_clock", losses.wrong_clock);
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

NvtxRowSink::NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start)
    : StepRowSink(next, run_id, run_start), capturing_(!nvtx_capturing() && !nvtx_tool_listens()) {
    if (!capturing_) return;
    nvtx_capture_take();  // discards ranges between runs
    nvtx_capture_lost();
    nvtx_capture_start();
}

NvtxRowSink::~NvtxRowSink() {
    if (capturing_) nvtx_capture_stop();
}

void NvtxRowSink::collect() {
    std::vector<NvtxRangeRow> rows;
    for (NvtxRange& range : nvtx_capture_take()) {
        if (range.domain == draftscope_domain) continue;
        rows.push_back({run_id_, std::move(range.domain), std::move(range.name),
                        static_cast<int>(range.thread_id), range.start_ns - run_start_,
                        range.end_ns - run_start_, static_cast<std::int64_t>(range.payload)});
    }
    if (!rows.empty()) next_.push(std::move(rows));
}

void NvtxRowSink::finish() {
    if (!capturing_) return;
    nvtx_capture_stop();
    capturing_ = false;
    collect();
    push_loss("nvtx_queue_full", nvtx_capture_lost());
}

// The recorder has the system's thread id, so that spans, NVTX ranges and CUDA calls of a thread can be
// joined.
RunTelemetry::RunTelemetry(const RunRow& row, RowIds& ids, RecordSink& next)
    : phases_(static_cast<std::uint32_t>(gettid())),
      listeners_(mirror_is_read(mirror_) ? &mirror_ : nullptr, is_traced(row) ? &gpu_phases_ : nullptr),
      nvtx_rows_(next, row.id, row.started_monotonic) {
    if (is_traced(row))
        gpu_rows_ =
            std::make_unique<GpuRowSink>(nvtx_rows_, gpu_session(), ids, row.id, row.started_monotonic);
    phases_.set_range_sink(listeners_.sink());
}

void RunTelemetry::finish() {
    if (gpu_rows_) gpu_rows_->finish();
    nvtx_rows_.finish();
}

}  // namespace draftscope
