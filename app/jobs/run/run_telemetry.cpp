#include "app/jobs/run/run_telemetry.h"

#include <unistd.h>

namespace draftscope {
namespace {

/// Returns whether phases are mirrored to NVTX: for an external tool or another capture in this process, not
/// for our own. Call before an NvtxRowSink starts its capture.
bool mirror_is_read(const NvtxMirror& mirror) {
    return mirror.attached() && (nvtx_tool_listens() || nvtx_capturing());
}

/// Returns the listener that the tier needs; null for T0.
RangeSink* tier_listener(const RunRow& row, CounterSession* counters, GpuPhaseStack& gpu_phases) {
    if (counters != nullptr) return counters;
    return row.tier != to_text(Tier::t0) ? &gpu_phases : nullptr;
}

}  // namespace

// The recorder has the system's thread id, so that spans, NVTX ranges and CUDA calls of a thread can be
// joined.
RunTelemetry::RunTelemetry(const RunRow& row, RowIds& ids, RecordSink& next, CounterSession* counters)
    : phases_(static_cast<std::uint32_t>(gettid())),
      listeners_(mirror_is_read(mirror_) ? &mirror_ : nullptr, tier_listener(row, counters, gpu_phases_)),
      nvtx_rows_(next, row.id, row.started_monotonic) {
    if (counters != nullptr)
        tier_rows_ = std::make_unique<CounterRowSink>(nvtx_rows_, *counters, row.id, row.started_monotonic);
    else if (row.tier != to_text(Tier::t0))
        tier_rows_ =
            std::make_unique<GpuRowSink>(nvtx_rows_, gpu_session(), ids, row.id, row.started_monotonic);
    phases_.set_range_sink(listeners_.sink());
}

void RunTelemetry::finish() {
    if (tier_rows_) tier_rows_->finish();
    nvtx_rows_.finish();
}

}  // namespace draftscope
