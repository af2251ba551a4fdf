#include "engine/control/debug_gate.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace draftscope {

void DebugGate::pause() {
    const std::lock_guard lock(mutex_);
    hold_ = true;
    request_ = {.reason = "paused"};
}

void DebugGate::resume() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    request_ = {};
    holding_ = false;
    changed_.notify_all();
}

void DebugGate::step(StepGranularity what) {
    const std::lock_guard lock(mutex_);
    const bool adds_up = hold_ && request_.granularity == what;
    if (!adds_up) request_ = {.granularity = what};
    ++request_.permits;
    request_.reason = "paused";
    hold_ = true;
    holding_ = false;
    changed_.notify_all();
}

void DebugGate::cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    holding_ = false;
    changed_.notify_all();
}

bool DebugGate::holding() const {
    const std::lock_guard lock(mutex_);
    return holding_;
}

void DebugGate::set_breakpoints(Breakpoints points) {
    const std::lock_guard lock(mutex_);
    breakpoints_ = std::move(points);
}

std::string DebugGate::reason() const {
    const std::lock_guard lock(mutex_);
    return request_.reason;
}

HoldPoint DebugGate::point() const {
    const std::lock_guard lock(mutex_);
    return point_;
}

void DebugGate::reset() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    cancelled_ = false;
    enabled_ = true;
    request_ = {};
    point_ = {};
    paused_ns_ = 0;
    pauses_.clear();
    watch_prompt_ = 0;
    watch_.reset();
}

void DebugGate::at_round_start(HoldPoint::Kind kind) {
    if (!may_hold()) return;
    std::unique_lock lock(mutex_);
    if (!hold_ || request_.permits > 0) return;
    point_ = {};
    point_.kind = kind;
    hold(lock);
}

void DebugGate::at_level(int level) {
    if (!may_hold()) return;
    const std::lock_guard lock(mutex_);
    if (!hold_ || request_.granularity != StepGranularity::level) return;
    request_.pending_boundary = HoldPoint::Kind::after_level;
    point_.level = level;
}

void DebugGate::phase_begins(const SpanEvent& opening) {
    if (!may_hold()) return;
    std::unique_lock lock(mutex_);
    if (!hold_ || !request_.pending_boundary) return;
    point_.kind = *request_.pending_boundary;
    point_.round = opening.round + 1;
    point_.next_phase_id = static_cast<int>(opening.phase);
    point_.next_level = opening.level;
    handle_boundary(lock);
}

void DebugGate::phase_ended(const SpanEvent& event) {
    const std::lock_guard lock(mutex_);
    watch_.phase_ended(event, breakpoints_);
    const TickScale& scale = TickScale::calibrate();
    const std::uint64_t start = std::min(event.start_ticks, event.end_ticks);
    point_.round = event.round + 1;
    point_.phase_id = static_cast<int>(event.phase);
    point_.level = event.level;
    point_.phase_ns = scale.to_monotonic_ns(event.end_ticks) - scale.to_monotonic_ns(start);
    if (may_hold() && request_.granularity == StepGranularity::phase)
        request_.pending_boundary = HoldPoint::Kind::after_phase;
}

void DebugGate::at_round_end(std::span<const RoundEnd> rounds,
                             const std::function<void(const BreakpointHit&)>& on_hit) {
    if (!enabled_) return;
    std::unique_lock lock(mutex_);
    const BreakpointHit hit = watch_.round_ended(rounds, breakpoints_);
    if (!hit.what.empty()) {
        hold_ = true;
        request_ = {.reason = std::string(breakpoint_note) + hit.what};
        if (hit.prompt_id != 0) watch_prompt_ = hit.prompt_id;  // the next step shows the same sequence
        lock.unlock();
        if (on_hit) on_hit(hit);
        lock.lock();
    }
    if (!hold_) return;
    point_.kind = HoldPoint::Kind::after_round;
    const RowId prompt_id = watch_prompt_;
    const bool in_step =
        std::ranges::any_of(rounds, [&](const RoundEnd& round) { return round.prompt_id == prompt_id; });
    point_.prompt_id = in_step ? prompt_id : 0;
    point_.next_phase_id = point_.next_level = 0;
    handle_boundary(lock);
}

void DebugGate::handle_boundary(std::unique_lock<std::mutex>& lock) {
    request_.pending_boundary.reset();
    if (request_.permits > 0) --request_.permits;
    if (request_.permits == 0) hold(lock);
}

void DebugGate::hold(std::unique_lock<std::mutex>& lock) {
    if (cancelled_) return;
    const TimeNs start = monotonic_ns();
    const std::uint64_t start_ticks = ticks_now();
    if (hook_) {
        const HoldPoint point = point_;
        lock.unlock();
        hook_(point);
        lock.lock();
    }
    const auto released = [this] { return !hold_ || request_.permits > 0 || cancelled_; };
    holding_ = !released();
    changed_.wait(lock, released);
    holding_ = false;
    paused_ns_ += monotonic_ns() - start;
    pauses_.push_back({start_ticks, ticks_now()});
}

TimeNs DebugGate::take_paused_ns() {
    const std::lock_guard lock(mutex_);
    return std::exchange(paused_ns_, 0);
}

TimeNs DebugGate::paused_ns() const {
    const std::lock_guard lock(mutex_);
    return paused_ns_;
}

std::vector<DebugGate::Pause> DebugGate::take_pauses() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pauses_, {});
}

}  // namespace draftscope
