#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "profiler/cupti_api.h"
#include "profiler/gpu_context.h"
#include "profiler/tier.h"

namespace draftscope {

/// One piece of GPU work with the phase it belongs to. Times are absolute CLOCK_MONOTONIC.
struct GpuOp {
    GpuOpKind kind = GpuOpKind::kernel;
    Phase phase = Phase::none;  ///< none = not attributed
    std::string name;           ///< demangled
    TimeNs start_ns = 0, end_ns = 0;
    TimeNs launch_ns = 0;  ///< begin of the launching call; joins the op to its step. 0 = not seen
    std::uint32_t correlation = 0;
    std::uint32_t device = 0, context = 0, stream = 0;
    std::uint64_t graph_node = 0;
    std::uint32_t graph_exec = 0;
    std::int32_t grid[3] = {};
    std::int32_t block[3] = {};
    std::uint64_t bytes = 0;
    std::uint16_t registers = 0;
    std::int32_t round = -1;  ///< in which it was launched, as SpanEvent
};

/// A CUDA call that launched, copied or waited.
struct GpuCall {
    const char* name = "";  ///< lives for ever
    std::uint32_t thread_id = 0;
    std::uint32_t correlation = 0;
    TimeNs start_ns = 0, end_ns = 0;
};

/// What did not arrive whole since the last call.
struct GpuLosses {
    std::uint64_t dropped = 0;          ///< CUPTI had no buffer for a record
    std::uint64_t queue_full = 0;       ///< nobody took the records in time
    std::uint64_t zero_timestamps = 0;  ///< the GPU had no place to write its times
    std::uint64_t unattributed = 0;     ///< ops of no phase; they are kept
    std::uint64_t before_launch = 0;    ///< ops that seem to begin before their launch: clocks disagree
    TimeNs worst_before_launch_ns = 0;
    std::uint64_t launches_forgotten = 0;  ///< calls that were evicted before their ops came
};

struct GpuSessionOptions {
    std::size_t buffer_bytes = 1u << 20;
    std::size_t most_buffers = 128;
    std::size_t most_queued = 1u << 20;    ///< records waiting for take()
    std::size_t most_launches = 1u << 18;  ///< calls remembered for ops that have not come
    TimeNs flush_every = 150 * ns_per_ms;  ///< by a thread of its own while a window is open; 0 = never
};

/// The CUPTI session of this process (tiers T1, T2; T3 has profiler/counter_session.h): subscribed once,
/// before any CUDA context or graph capture, never stopped; runs are windows of time in it. CUPTI threads
/// deliver, one thread opens windows and takes.
class GpuSession {
  public:
    explicit GpuSession(std::unique_ptr<CuptiApi> api, const GpuSessionOptions& options = {});
    ~GpuSession();
    GpuSession(const GpuSession&) = delete;
    GpuSession& operator=(const GpuSession&) = delete;

    /// Subscribes on the first call and enables what the tier needs; what is on stays on. T1 and T2 exclude
    /// each other in one process: with kernels on, graph records are not made.
    CuptiProbe open(Tier tier);
    CuptiProbe state() const;
    /// The tier that is being traced, T0 before open().
    Tier tier() const;

    /// Ops that start inside a window are kept.
    void begin_window();
    /// Work must have been waited for by then. Flushes everything; ops stay to be taken.
    void end_window();
    /// Asks CUPTI for what is finished.
    void poll();
    /// Appends what has arrived, by start time within what came together, attributed.
    void take(std::vector<GpuOp>& ops, std::vector<GpuCall>& calls);
    GpuLosses take_losses();

    struct Impl;

  private:
    std::unique_ptr<Impl> impl_;
};

/// The process's own session on the real CUPTI.
GpuSession& gpu_session();

}  // namespace draftscope
