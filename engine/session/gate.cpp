#include "engine/session/gate.h"

#include "base/clock.h"

namespace draftscope {

void Gate::pause() {
    const std::lock_guard lock(mutex_);
    hold_ = true;
    granularity_ = GateStep::round;
    permits_ = 0;
    reason_ = "paused";
}

void Gate::resume() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    permits_ = 0;
    granularity_ = GateStep::round;
    reason_.clear();
    holding_ = false;
    changed_.notify_all();
}

void Gate::step(GateStep what) {
    const std::lock_guard lock(mutex_);
    const bool adds_up = hold_ && granularity_ == what;
    permits_ = adds_up ? permits_ + 1 : 1;
    granularity_ = what;
    hold_ = true;
    holding_ = false;
    reason_ = "paused";
    changed_.notify_all();
}

void Gate::cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    holding_ = false;
    changed_.notify_all();
}

bool Gate::holding() const {
    const std::lock_guard lock(mutex_);
    return holding_;
}

void Gate::set_breakpoints(Breakpoints points) {
    const std::lock_guard lock(mutex_);
    breakpoints_ = std::move(points);
}

std::string Gate::reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
}

void Gate::reset() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    cancelled_ = false;
    granularity_ = GateStep::round;
    permits_ = 0;
    reason_.clear();
    paused_ns_ = 0;
    watched_ = 0;
    watch_.reset();
}

void Gate::at_round_start() {
    if (!hold_.load(std::memory_order_relaxed)) return;
    std::unique_lock lock(mutex_);
    if (hold_ && permits_ == 0) hold(lock, Phase::none, 0);
}

void Gate::at_level(int level) {
    boundary(GateStep::level, Phase::none, level);
}

void Gate::phase_ended(const SpanEvent& event) {
    {
        const std::lock_guard lock(mutex_);
        watch_.phase_ended(event, breakpoints_);
    }
    boundary(GateStep::phase, event.phase, event.level);
}

void Gate::at_round_end(std::span<const RoundEnd> rounds) {
    {
        const std::lock_guard lock(mutex_);
        const std::string met = watch_.round_ended(rounds, breakpoints_);
        if (!met.empty()) {
            hold_ = true;
            permits_ = 0;
            granularity_ = GateStep::round;
            reason_ = "breakpoint: " + met;
        }
    }
    boundary(GateStep::round, Phase::none, 0);
}

void Gate::boundary(GateStep what, Phase phase, int level) {
    if (!hold_.load(std::memory_order_relaxed)) return;
    std::unique_lock lock(mutex_);
    if (!hold_ || (what != granularity_ && what != GateStep::round)) return;
    if (permits_ > 0) --permits_;
    if (permits_ == 0) hold(lock, phase, level);
}

void Gate::hold(std::unique_lock<std::mutex>& lock, Phase phase, int level) {
    if (cancelled_) return;
    const TimeNs start = monotonic_ns();
    if (hook_) {
        lock.unlock();
        hook_(phase, level);
        lock.lock();
    }
    const auto released = [this] { return !hold_ || permits_ > 0 || cancelled_; };
    holding_ = !released();
    changed_.wait(lock, released);
    holding_ = false;
    paused_ns_ += monotonic_ns() - start;
}

TimeNs Gate::take_paused_ns() {
    const std::lock_guard lock(mutex_);
    const TimeNs taken = paused_ns_;
    paused_ns_ = 0;
    return taken;
}

}  // namespace draftscope
