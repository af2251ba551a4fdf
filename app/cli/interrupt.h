#pragma once

#include <atomic>
#include <thread>

#include "engine/control/debug_gate.h"

namespace draftscope::cli {

/// Converts Ctrl-C, SIGTERM and SIGHUP into cancellation: a watcher thread cancels the gate. The third Ctrl-C
/// exits at once.
class InterruptWatch {
  public:
    explicit InterruptWatch(DebugGate& gate);
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

  private:
    std::atomic<bool> done_{false};
    bool hangup_ = false;  ///< SIGHUP was not ignored before
    std::thread watcher_;
};

}  // namespace draftscope::cli
