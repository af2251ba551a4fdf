#include "engine/round/device_spans.h"

#include "base/clock.h"

namespace draftscope {

void DeviceSpans::begin(kernels::Backend& backend, bool observed, bool sampled) {
    backend_ = &backend;
    observed_ = observed;
    sampled_ = sampled;
    at_once_ = observed || backend.is_host();
    timer_ = observed || !sampled ? nullptr : backend.timer();
    timed_.clear();
    if (timer_ != nullptr) {
        timer_->reset();
        (void)timer_->mark();
    }
    start_ticks_ = ticks_now();
}

void DeviceSpans::record(PhaseRecorder& phases) {
    if (timed_.empty()) return;
    const double ticks = 1.0 / TickScale::calibrate().ns_per_tick();
    for (Timed& timed : timed_) {
        const TimeNs from = timer_ == nullptr ? -1 : timer_->elapsed_ns(0, timed.from);
        const TimeNs to = timer_ == nullptr ? -1 : timer_->elapsed_ns(0, timed.to);
        if (from >= 0 && to >= from) {
            timed.event.start_ticks =
                start_ticks_ + static_cast<std::uint64_t>(static_cast<double>(from) * ticks);
            timed.event.end_ticks =
                start_ticks_ + static_cast<std::uint64_t>(static_cast<double>(to) * ticks);
        }
        phases.record(timed.event);
    }
    timed_.clear();
}

DeviceSpans::Scope::Scope(DeviceSpans& spans, PhaseRecorder& phases, Phase phase, int level, int rows,
                          std::uint64_t bytes)
    : spans_(spans) {
    if (spans.at_once_) {
        at_once_.emplace(phases, phase, level, rows, bytes);
        return;
    }
    event_.phase = phase;
    event_.level = static_cast<std::int16_t>(level);
    event_.rows = rows;
    event_.bytes = bytes;
    event_.round = phases.round();
    listener_ = phases.enabled() ? phases.range_sink() : nullptr;
    if (listener_ != nullptr) listener_->open(event_);
    event_.start_ticks = ticks_now();
    if (spans_.timer_ != nullptr) from_ = spans_.timer_->mark();
}

DeviceSpans::Scope::~Scope() {
    if (spans_.observed_) (void)spans_.backend_->synchronize();  // the round's wait returns the error, too
    if (at_once_) return;
    const std::uint32_t to = spans_.timer_ == nullptr ? 0 : spans_.timer_->mark();
    event_.end_ticks = ticks_now();
    if (listener_ != nullptr) listener_->close(event_);
    if (spans_.sampled_) spans_.timed_.push_back({event_, from_, to});
}

}  // namespace draftscope
