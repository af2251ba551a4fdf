#pragma once

#include <optional>
#include <vector>

#include "app/jobs/run/step_row_sink.h"
#include "capture/record.h"
#include "profiler/cupti/gpu_session.h"
#include "profiler/cupti/tier.h"

namespace draftscope {

/// Opens `session` for the requested tier if the back end runs on a GPU. Returns the tier that the run gets
/// and why. Call before the CUDA back end creates its context or captures a graph.
TierChoice open_tier(Tier requested, bool gpu_backend, GpuSession& session);

/// Finds the step of GPU work by its launch time. Steps are added when they end, ops when the GPU has
/// finished them. Single-threaded.
class StepFinder {
  public:
    void add(RowId id, TimeNs start_ns, TimeNs end_ns);
    /// Returns the step's id; 0 = no step; absent while a step that may contain the launch has not ended.
    std::optional<RowId> find(TimeNs launch_ns) const;
    void finish() { finished_ = true; }

  private:
    struct Step {
        RowId id;
        TimeNs start_ns, end_ns;
    };
    std::vector<Step> steps_;  ///< ascending and disjoint, as the decode loop runs them
    bool finished_ = false;
};

/// Sink of a traced run: assigns GPU work to the steps that launched it. Adds rows for the work and for
/// losses. finish() waits for CUPTI's buffers.
class GpuRowSink : public StepRowSink {
  public:
    GpuRowSink(RecordSink& next, GpuSession& session, RowIds& ids, RowId run_id, TimeNs run_start);
    void finish() override;

  private:
    void add_step(const StepRow& step) override { steps_.add(step.id, step.start_ns, step.end_ns); }
    void after_step() override { collect(); }
    void collect();
    void push_losses();

    GpuSession& session_;
    RowIds& ids_;
    StepFinder steps_;
    std::vector<GpuOp> ops_;
    std::vector<GpuCall> calls_;
};

/// NVTX domain of CUDA calls in table nvtx_range. The payload is the correlation id of the gpu_op rows that
/// the call launched.
inline constexpr const char* cuda_call_domain = "CUDA API";

}  // namespace draftscope
