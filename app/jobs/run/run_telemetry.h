#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/phase.h"
#include "capture/record.h"
#include "profiler/cupti/gpu_context.h"
#include "profiler/cupti/gpu_session.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {

/// A sink between engine and recorder. It forwards every record, and adds rows of its own after each step.
class StepRowSink : public RecordSink {
  public:
    StepRowSink(RecordSink& next, RowId run_id, TimeNs run_start)
        : next_(next), run_id_(run_id), run_start_(run_start) {}
    void push(Record record) final {
        const auto* step = std::get_if<StepRecord>(&record);
        const bool ended = step != nullptr;
        if (ended) add_step(step->step);
        next_.push(std::move(record));
        if (ended) after_step();
    }
    /// Call after the engine's last record. Pushes the remaining rows and the losses.
    virtual void finish() = 0;

  protected:
    /// Called for each step, before and after it is forwarded.
    virtual void add_step(const StepRow&) {}
    virtual void after_step() = 0;
    TimeNs now() const { return std::max<TimeNs>(0, monotonic_ns() - run_start_); }
    void push_loss(const char* kind, std::uint64_t count) {
        if (count > 0) next_.push(LossRow{run_id_, now(), kind, static_cast<std::int64_t>(count)});
    }

    RecordSink& next_;
    RowId run_id_;
    TimeNs run_start_;
};

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
