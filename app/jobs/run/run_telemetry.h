#pragma once

#include <memory>

#include "app/jobs/run/gpu_row_sinks.h"
#include "base/phase.h"
#include "profiler/cupti/gpu_context.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

/// Adds the NVTX ranges of other libraries after each step. The ranges come from our injection library. If
/// another capture is active or a tool is attached, it only forwards.
class NvtxRowSink : public StepRowSink {
  public:
    NvtxRowSink(RecordSink& next, RowId run_id, TimeNs run_start);
    ~NvtxRowSink() override;
    void finish() override;

  private:
    void after_step() override {
        if (capturing_) collect();
    }
    void collect();

    bool capturing_;
};

/// The phase recorder of one run with the listeners and row sinks that its tier needs. The sinks add rows for
/// GPU work and NVTX ranges. Not movable, as its parts refer to each other.
class RunTelemetry {
  public:
    /// Rows are pushed to `next`.
    RunTelemetry(const RunRow& row, RowIds& ids, RecordSink& next);
    RunTelemetry(const RunTelemetry&) = delete;
    RunTelemetry& operator=(const RunTelemetry&) = delete;

    PhaseRecorder& phases() { return phases_; }
    /// Returns the sink for the run's records.
    RecordSink& sink() { return gpu_rows_ ? *gpu_rows_ : static_cast<RecordSink&>(nvtx_rows_); }
    /// Call after the engine's last record. Waits for pending measurements and pushes their rows.
    void finish();

  private:
    PhaseRecorder phases_;
    NvtxMirror mirror_;
    GpuPhaseStack gpu_phases_;
    TeeRangeSink listeners_;
    NvtxRowSink nvtx_rows_;
    std::unique_ptr<GpuRowSink> gpu_rows_;  ///< null at tier T0
};

}  // namespace draftscope
