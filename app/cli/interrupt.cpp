#include "app/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>

namespace draftscope::cli {
namespace {

/// The watching thread reads it, so it has to be atomic, not only `volatile std::sig_atomic_t`.
std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_interrupt(int) {
    if (interrupts.fetch_add(1, std::memory_order_relaxed) == 2)
        _exit(130);  // third Ctrl-C: exit without cleaning up
}

}  // namespace

InterruptWatch::InterruptWatch(DebugGate& gate) {
    interrupts.store(0, std::memory_order_relaxed);
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    // A terminal that closes ends a run as kill does; nohup has the program ignore it.
    hangup_ = std::signal(SIGHUP, on_interrupt) != SIG_IGN;
    if (!hangup_) std::signal(SIGHUP, SIG_IGN);
    watcher_ = std::thread([this, &gate] {
        while (!done_.load(std::memory_order_relaxed)) {
            if (interrupts.load(std::memory_order_relaxed) > 0) gate.cancel();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
}

InterruptWatch::~InterruptWatch() {
    done_.store(true, std::memory_order_relaxed);
    watcher_.join();
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    if (hangup_) std::signal(SIGHUP, SIG_DFL);
}

}  // namespace draftscope::cli
