#include "app/cli/interrupt.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

namespace draftscope::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0;

void on_interrupt(int) {
    interrupts = interrupts + 1;
    if (interrupts > 2) _exit(130);  // third Ctrl-C: exit without cleaning up
}

}  // namespace

InterruptWatch::InterruptWatch(DebugGate& gate) {
    interrupts = 0;
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    watcher_ = std::thread([this, &gate] {
        while (!done_.load(std::memory_order_relaxed)) {
            if (interrupts > 0) gate.cancel();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
}

InterruptWatch::~InterruptWatch() {
    done_.store(true, std::memory_order_relaxed);
    watcher_.join();
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

}  // namespace draftscope::cli
