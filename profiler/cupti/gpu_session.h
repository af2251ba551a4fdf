#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "profiler/cupti/cupti_api.h"
#include "profiler/cupti/gpu_context.h"
#include "profiler/cupti/tier.h"

namespace draftscope {

/// One piece of GPU work with its phase. Times are absolute CLOCK_MONOTONIC.
struct GpuOp : GpuActivity {
    Phase phase = Phase::none;  ///< none = not attributed
    std::string name;           ///< demangled
    TimeNs launch_ns = 0;       ///< start of the launching call, which joins the op to its step; 0 = unknown
    std::int32_t round = -1;    ///< round of the launch, as in SpanEvent
};

/// A CUDA call that launches, copies or waits.
struct GpuCall {
    const char* name = "";  ///< stays valid
    std::uint32_t thread_id = 0;
    std::uint32_t correlation = 0;
    TimeNs start_ns = 0, end_ns = 0;
};

/// Number of incomplete or missing items since the last call.
struct GpuLosses {
    std::uint64_t dropped = 0;          ///< records without a CUPTI buffer
    std::uint64_t queue_full = 0;       ///< records that were not taken in time
    std::uint64_t zero_timestamps = 0;  ///< ops without GPU times
    std::uint64_t wrong_clock = 0;  ///< ops whose times are not CLOCK_MONOTONIC, as after a late subscription
    std::uint64_t unattributed = 0;   ///< ops without a phase, which are kept
    std::uint64_t before_launch = 0;  ///< ops that start before their launch: the clocks disagree
    TimeNs worst_before_launch_ns = 0;
    std::uint64_t launches_forgotten = 0;  ///< calls evicted before their ops arrived
};

struct GpuSessionOptions {
    std::size_t buffer_bytes = 1u << 20;
    std::size_t max_buffers = 128;
    std::size_t max_queued = 1u << 20;     ///< records waiting for take()
    std::size_t max_launches = 1u << 18;   ///< calls kept for ops that have not arrived
    TimeNs flush_every = 150 * ns_per_ms;  ///< period of the flush thread while a window is open; 0 = never
};

/// The CUPTI session of this process for tiers T1 and T2. It
/// subscribes once, before any CUDA context or graph capture, and never stops. A run is a time window in it.
/// CUPTI's threads deliver records; one thread opens windows and takes ops.
class GpuSession {
  public:
    explicit GpuSession(std::unique_ptr<CuptiApi> api, const GpuSessionOptions& options = {});
    ~GpuSession();
    GpuSession(const GpuSession&) = delete;
    GpuSession& operator=(const GpuSession&) = delete;

    /// Subscribes on the first call and enables what the tier needs. Enabled kinds stay on. T1 and T2 exclude
    /// each other in a process, because CUPTI makes no graph records while kernel records are enabled.
    CuptiProbe open(Tier wanted);
    CuptiProbe state() const;
    /// Returns the traced tier, T0 before open().
    Tier tier() const;

    /// Starts to keep ops.
    void begin_window();
    /// Ends the window and flushes everything. The caller must have waited for the GPU work. Ops stay
    /// available to take().
    void end_window();
    /// Appends the attributed ops and calls that have arrived, each delivery sorted by start time.
    void take(std::vector<GpuOp>& ops, std::vector<GpuCall>& calls);
    GpuLosses take_losses();

    struct Impl;

  private:
    std::unique_ptr<Impl> impl_;
};

/// Returns the process's session on CUPTI.
GpuSession& gpu_session();

}  // namespace draftscope
