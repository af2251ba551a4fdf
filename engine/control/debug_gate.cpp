#include "engine/control/debug_gate.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace draftscope {

void Gate::pause() {
    const std::lock_guard lock(mutex_);
    hold_ = true;
    due_.reset();
    granularity_ = GateStep::round;
    permits_ = 0;
    reason_ = "paused";
}

void Gate::resume() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    due_.reset();
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
    if (!adds_up) due_.reset();
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

HoldPoint Gate::point() const {
    const std::lock_guard lock(mutex_);
    return point_;
}

void Gate::reset() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    cancelled_ = false;
    enabled_ = true;
    granularity_ = GateStep::round;
    permits_ = 0;
    due_.reset();
    point_ = {};
    reason_.clear();
    paused_ns_ = 0;
    pauses_.clear();
    watched_ = 0;
    watch_.reset();
}

void Gate::at_round_start(HoldPoint::Kind kind) {
    if (!may_hold()) return;
    std::unique_lock lock(mutex_);
    if (!hold_ || permits_ > 0) return;
    point_ = {};
    point_.kind = kind;
    hold(lock);
}

void Gate::at_level(int level) {
    if (!may_hold()) return;
    const std::lock_guard lock(mutex_);
    if (!hold_ || granularity_ != GateStep::level) return;
    due_ = HoldPoint::Kind::after_level;
    point_.level = level;
}

void Gate::phase_begins(const SpanEvent& opening) {
    if (!may_hold()) return;
    std::unique_lock lock(mutex_);
    if (!hold_ || !due_) return;
    point_.kind = *due_;
    point_.round = opening.round + 1;
    point_.next_phase_id = static_cast<int>(opening.phase);
    point_.next_level = opening.level;
    reach(lock);
}

void Gate::phase_ended(const SpanEvent& event) {
    const std::lock_guard lock(mutex_);
    watch_.phase_ended(event, breakpoints_);
    const TickScale& scale = TickScale::calibrate();
    const std::uint64_t start = std::min(event.start_ticks, event.end_ticks);
    point_.round = event.round + 1;
    point_.phase_id = static_cast<int>(event.phase);
    point_.level = event.level;
    point_.phase_ns = scale.to_monotonic_ns(event.end_ticks) - scale.to_monotonic_ns(start);
    if (may_hold() && granularity_ == GateStep::phase) due_ = HoldPoint::Kind::after_phase;
}

void Gate::at_round_end(std::span<const RoundEnd> rounds) {
    if (!enabled_) return;
    std::unique_lock lock(mutex_);
    const std::string met = watch_.round_ended(rounds, breakpoints_);
    if (!met.empty()) {
        hold_ = true;
        permits_ = 0;
        granularity_ = GateStep::round;
        reason_ = "breakpoint: " + met;
    }
    if (!hold_) return;
    point_.kind = HoldPoint::Kind::after_round;
    point_.next_phase_id = point_.next_level = 0;
    reach(lock);
}

void Gate::reach(std::unique_lock<std::mutex>& lock) {
    due_.reset();
    if (permits_ > 0) --permits_;
    if (permits_ == 0) hold(lock);
}

void Gate::hold(std::unique_lock<std::mutex>& lock) {
    if (cancelled_) return;
    const TimeNs start = monotonic_ns();
    const std::uint64_t start_ticks = ticks_now();
    if (hook_) {
        const HoldPoint point = point_;
        lock.unlock();
        hook_(point);
        lock.lock();
    }
    const auto released = [this] { return !hold_ || permits_ > 0 || cancelled_; };
    holding_ = !released();
    changed_.wait(lock, released);
    holding_ = false;
    paused_ns_ += monotonic_ns() - start;
    pauses_.push_back({start_ticks, ticks_now()});
}

TimeNs Gate::take_paused_ns() {
    const std::lock_guard lock(mutex_);
    return std::exchange(paused_ns_, 0);
}

TimeNs Gate::paused_ns() const {
    const std::lock_guard lock(mutex_);
    return paused_ns_;
}

std::vector<Gate::Pause> Gate::take_pauses() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pauses_, {});
}

}  // namespace draftscope
