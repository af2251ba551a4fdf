#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/heads/head.h"

namespace draftscope {

/// A thread of a head's own for work beside the drafter's backbone (DynaSpec's router, MicroSpec's refill):
/// the second CUDA stream of the papers. Work runs in the order in which it was started.
class SideLane {
  public:
    /// Beside `exec`: the same instruction set, so that results are the same wherever work runs. All its work
    /// is of one phase.
    SideLane(const kernels::Exec& exec, Phase phase);
    ~SideLane();
    SideLane(const SideLane&) = delete;
    SideLane& operator=(const SideLane&) = delete;

    using Ticket = std::uint64_t;  ///< 0 = nothing to wait for
    /// Starts `work`, which returns the bytes it moved and may use the Exec it is given until it returns.
    /// What it touches must be left alone until wait() or settle() for its ticket.
    Ticket start(ProposeContext& context, int rows, std::function<std::uint64_t(kernels::Exec&)> work);
    /// Until the work of `ticket` and all before it is done; what the thread has not begun by then is done
    /// here. Records the lane's work on the side lane, and what was waited or done here as the same phase on
    /// the critical lane: that is the part that is exposed.
    void wait(ProposeContext& context, Ticket ticket);
    /// The same where there is nothing to record it in; finished work that was not recorded is left out.
    void settle(Ticket ticket);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
