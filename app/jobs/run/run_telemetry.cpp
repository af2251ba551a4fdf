#include "app/jobs/run/run_telemetry.h"

#include <unistd.h>

namespace draftscope {
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
