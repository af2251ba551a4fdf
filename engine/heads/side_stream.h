#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/heads/head_call.h"

namespace draftscope {

/// What work on a side stream needs of its caller.
struct HeadContext {
    kernels::Backend& backend;
    PhaseRecorder& phases;
    int level = 0;
};

/// Runs work concurrently with the drafter's backbone (DynaSpec's router, MicroSpec's refill), as the papers'
/// second CUDA stream does. On the CPU it is a thread. Jobs run in the order in which they were started.
class SideStream {
  public:
    /// Uses the instruction set of `backend`, so that results do not depend on the thread. All jobs have one
    /// phase.
    SideStream(const kernels::Backend& backend, Phase phase);
    ~SideStream();
    SideStream(const SideStream&) = delete;
    SideStream& operator=(const SideStream&) = delete;

    using Ticket = std::uint64_t;  ///< 0 = nothing to wait for
    /// Starts `work`, which returns the bytes it moved and may use its backend until it returns. The caller
    /// must not touch the work's data before wait() or wait_discard() for its ticket.
    Ticket start(HeadContext& context, int rows, std::function<std::uint64_t(kernels::Backend&)> work);
    /// Waits for `ticket` and all earlier jobs; runs jobs here that the thread has not begun. Records the
    /// thread's jobs on the side lane. Time spent waiting or working here is exposed and recorded as the same
    /// phase on the critical lane.
    void wait(HeadContext& context, Ticket ticket);
    /// Starts `work`, which enqueues ops on the device that it gets. They run on the side stream of the
    /// call's device, on the CPU on the thread. `bytes`: what they read. Keep `work` small, so that nothing
    /// is allocated.
    template <typename Work>
    Ticket start(HeadCall& call, std::uint64_t bytes, Work work) {
        if (!call.backend.is_host()) {
            call.backend.on_side_stream([&backend = call.backend, work] { work(backend); });
            return 0;
        }
        HeadContext context{call.backend, call.phases, call.level};
        return start(context, call.rows, [bytes, work](kernels::Backend& backend) {
            work(backend);
            return bytes;
        });
    }
    /// Makes later ops of the call wait for `ticket`. The time waited is recorded as wait() does.
    void join(HeadCall& call, Ticket ticket, std::uint64_t bytes);
    /// Waits as wait() does, without recording; finished jobs of this ticket are dropped from the record.
    void wait_discard(Ticket ticket);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
