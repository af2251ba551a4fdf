#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/heads/head.h"

namespace draftscope {

/// A thread for work concurrent with the drafter's backbone (DynaSpec's router, MicroSpec's refill). It
/// corresponds to the papers' second CUDA stream. Jobs run in the order in which they were started.
class SideStream {
  public:
    /// Uses the instruction set of `exec`, so that results do not depend on the thread. All jobs have one
    /// phase.
    SideStream(const kernels::Exec& exec, Phase phase);
    ~SideStream();
    SideStream(const SideStream&) = delete;
    SideStream& operator=(const SideStream&) = delete;

    using Ticket = std::uint64_t;  ///< 0 = nothing to wait for
    /// Starts `work`, which returns the bytes it moved and may use its Exec until it returns. The caller must
    /// not touch the work's data before wait() or wait_discard() for its ticket.
    Ticket start(ProposeContext& context, int rows, std::function<std::uint64_t(kernels::Exec&)> work);
    /// Waits for `ticket` and all earlier jobs; runs jobs here that the thread has not begun. Records the
    /// thread's jobs on the side lane. Time spent waiting or working here is exposed and recorded as the same
    /// phase on the critical lane.
    void wait(ProposeContext& context, Ticket ticket);
    /// Waits as wait() does, without recording; finished jobs of this ticket are dropped from the record.
    void wait_discard(Ticket ticket);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
