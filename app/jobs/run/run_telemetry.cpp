#include "app/jobs/run/run_telemetry.h"

#include <unistd.h>

#include "base/clock.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {
namespace {

/// Ranges of this domain mirror our phases, which the capture already contains as spans.
constexpr std::string_view draftscope_domain = "draftscope";

}  // namespace

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

namespace {

/// Returns whether phases are mirrored to NVTX: for an external tool or another capture in this process, not
/// for our own. Call before an NvtxRowSink starts its capture.
bool mirror_is_read(const NvtxMirror& mirror) {
    return mirror.attached() && (nvtx_tool_listens() || nvtx_capturing());
}

bool is_traced(const RunRow& row) {
    return row.tier != to_text(Tier::t0);
}

}  // namespace

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
