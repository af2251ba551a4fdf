#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/phase.h"
#include "base/units.h"
#include "capture/record.h"
#include "engine/control/breakpoints.h"

namespace draftscope {

enum class StepGranularity { phase, level, round };

/// Stops the engine thread between rounds, levels or phases, and measures the time it was stopped. Any thread
/// may call the control functions; only the engine thread calls the `at_*` functions.
///
/// pause() stops at the next round boundary. step() runs to the next boundary of its kind; further steps
/// requested meanwhile add up. The end of a round is a boundary for every kind of step, so that its outcome
/// can be inspected. After a phase or level the engine stops when the next phase begins, so that the gate can
/// name it.
class DebugGate : public PhaseObserver {
  public:
    /// An interval in which the engine was stopped.
    struct Pause {
        std::uint64_t start_ticks = 0, end_ticks = 0;
    };

    void pause();
    void resume();
    /// Runs to the end of the next phase, level or round and then stops again.
    void step(StepGranularity what);
    void cancel();  ///< also releases a stopped engine
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
    bool paused() const { return hold_.load(std::memory_order_relaxed); }  ///< a stop was requested
    bool holding() const;  ///< the engine thread waits and has not been released
    void set_breakpoints(Breakpoints points);
    /// Selects the sequence of a batch that a stopped step shows and whose levels are boundaries; 0 = the
    /// first.
    void watch(RowId prompt_id) { watch_prompt_.store(prompt_id, std::memory_order_relaxed); }
    RowId watch_prompt() const { return watch_prompt_.load(std::memory_order_relaxed); }
    /// Reason of the stop: "", "paused", "breakpoint: rejection at depth <= 1".
    std::string reason() const;
    /// Where the engine is stopped, or was stopped last.
    HoldPoint point() const;
    void reset();  ///< prepares the next run: not paused, not cancelled; breakpoints are kept
    /// If disabled, nothing stops the engine: preparatory rounds (tree measurement, baseline) are no steps of
    /// the run.
    void set_enabled(bool enabled) { enabled_.store(enabled, std::memory_order_relaxed); }

    // Engine side.
    /// Call before the first work of a round, or before a prompt is read. Stops if paused, without counting
    /// as the end of a step.
    void at_round_start(HoldPoint::Kind kind = HoldPoint::Kind::before_round);
    void at_level(int level);
    /// Call after a step was recorded. Each of its rounds can hit a breakpoint. `on_hit` is then called
    /// before the engine stops, without a lock.
    void at_round_end(std::span<const RoundEnd> rounds,
                      const std::function<void(const BreakpointHit&)>& on_hit = {});
    void phase_begins(const SpanEvent& opening) override;
    void phase_ended(const SpanEvent& event) override;
    /// Sets a function that the engine thread calls before it waits, without a lock, to publish the current
    /// round.
    void set_hold_hook(std::function<void(const HoldPoint& point)> hook) { hook_ = std::move(hook); }
    /// Time stopped since the last call.
    TimeNs take_paused_ns();
    TimeNs paused_ns() const;  ///< the same time, without the reset
    /// Intervals stopped since the last call, in order.
    std::vector<Pause> take_pauses();

  private:
    /// What the engine was last asked for.
    struct Request {
        std::string reason{};  ///< of the stop; "" = run
        StepGranularity granularity = StepGranularity::round;
        std::uint64_t permits = 0;  ///< boundaries that the engine may still pass
        /// Set after a phase or level: the next phase is a boundary.
        std::optional<HoldPoint::Kind> pending_boundary{};
    };
    /// Handles a boundary: stops unless a permit is left. Requires the mutex.
    void handle_boundary(std::unique_lock<std::mutex>& lock);
    void hold(std::unique_lock<std::mutex>& lock);
    bool may_hold() const {
        return hold_.load(std::memory_order_relaxed) && enabled_.load(std::memory_order_relaxed);
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> hold_{false};  ///< stop at the next matching boundary; written under the mutex
    std::atomic<bool> cancelled_{false}, enabled_{true};
    std::atomic<RowId> watch_prompt_{0};
    Request request_;
    bool holding_ = false;
    HoldPoint point_;
    Breakpoints breakpoints_;
    BreakpointWatch watch_;
    TimeNs paused_ns_ = 0;
    std::vector<Pause> pauses_;
    std::function<void(const HoldPoint&)> hook_;
};

}  // namespace draftscope
