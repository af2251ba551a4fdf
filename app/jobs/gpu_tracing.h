#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "capture/record.h"
#include "profiler/counter_session.h"
#include "profiler/gpu_session.h"
#include "profiler/tier.h"

namespace draftscope {

/// Opens `session` for what was asked, where the back end runs on a GPU; says what the run gets instead where
/// it can't. To be called before the CUDA back end makes its context or captures a graph. `counters`: may
/// counters be read here? T3 needs no session: its counters are begun when there is a context
/// (begin_counters).
TierChoice open_tier(Tier asked, bool gpu_backend, GpuSession& session, const CuptiProbe& counters);

/// Begins to count for a choice of T3, on the thread that decodes, once the model lies on the device. Null,
/// and the choice becomes T0 with the reason, where the device refuses.
std::unique_ptr<CounterSession> begin_counters(std::unique_ptr<CounterApi> api, TierChoice& choice);

/// Finds the step of GPU work by the time of its launch: steps come when they end, ops when the GPU has
/// done. Single-threaded.
class StepFinder {
  public:
    void add(RowId id, TimeNs start_ns, TimeNs end_ns);
    /// 0 = in no step; absent while a step that may hold it has not ended.
    std::optional<RowId> find(TimeNs launch_ns) const;
    void finish() { finished_ = true; }

  private:
    struct Step {
        RowId id;
        TimeNs start_ns, end_ns;
    };
    std::vector<Step> steps_;  ///< ascending; the decode loop makes them one after the other
    bool finished_ = false;
};

/// Between the engine and the recorder during a traced run: passes every record on, joins GPU work to the
/// steps that launched it and adds it, with what was lost, as rows.
class GpuRowSink : public RecordSink {
  public:
    GpuRowSink(RecordSink& next, GpuSession& session, RowIds& ids, RowId run_id, TimeNs run_start);
    void push(Record record) override;
    /// After the last record of the engine: waits for CUPTI's buffers, then pushes everything left.
    void finish();

  private:
    void collect();
    void push_losses();

    RecordSink& next_;
    GpuSession& session_;
    RowIds& ids_;
    RowId run_id_;
    TimeNs run_start_;
    StepFinder steps_;
    std::vector<GpuOp> ops_;
    std::vector<GpuCall> calls_;
};

/// The same for counters: joins what was counted over each phase to its step, summed by step and phase.
class CounterRowSink : public RecordSink {
  public:
    CounterRowSink(RecordSink& next, CounterSession& session, RowId run_id, TimeNs run_start);
    void push(Record record) override;
    void finish();

  private:
    void collect(bool all);

    RecordSink& next_;
    CounterSession& session_;
    RowId run_id_;
    TimeNs run_start_;
    StepFinder steps_;
    std::vector<CounterReading> readings_;
};

/// NVTX domain under which CUDA calls are stored in nvtx_range: payload = correlation id of the gpu_op rows
/// that the call launched.
inline constexpr const char* cuda_call_domain = "CUDA API";

}  // namespace draftscope
