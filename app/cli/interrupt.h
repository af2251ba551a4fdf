#pragma once

#include <atomic>
#include <thread>

#include "engine/session/gate.h"

namespace draftscope::cli {

/// Turns Ctrl-C into a cancelled job: a watcher thread tells the gate. The third one leaves at once.
class InterruptWatch {
  public:
    explicit InterruptWatch(Gate& gate);
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

  private:
    std::atomic<bool> done_{false};
    std::thread watcher_;
};

}  // namespace draftscope::cli
