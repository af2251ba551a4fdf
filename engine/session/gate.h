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

#include "base/units.h"
#include "capture/record.h"
#include "engine/session/breakpoints.h"
#include "profiler/phase.h"

namespace draftscope {

enum class GateStep { phase, level, round };

/// Holds the engine thread between rounds, levels or phases, and counts the time it was held. The control
/// side may be any thread; the `at_*` side is the engine thread. Cancelling releases a held engine.
///
/// A plain pause holds at the next round boundary. A step lets the engine reach the next boundary of its kind
/// and holds there; steps asked for while one is under way add up. The end of a round is a boundary for every
/// kind of step, so that its outcome can be looked at. After a phase or level the engine is held when the
/// next phase begins, so that the gate can name it.
class Gate : public PhaseObserver {
  public:
    /// A stretch in which the engine was held.
    struct Pause {
        std::uint64_t start_ticks = 0, end_ticks = 0;
    };

    void pause();
    void resume();
    /// Runs to the end of the next phase, level or round, then holds again.
    void step(GateStep what);
    void cancel();
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
    bool paused() const { return hold_.load(std::memory_order_relaxed); }  ///< asked to hold, or holding
    bool holding() const;  ///< the engine thread waits and nothing has released it
    void set_breakpoints(Breakpoints points);
    /// The sequence of a batch that a held step shows, and whose levels it stops at; 0 = the first under way.
    void watch(RowId prompt_id) { watched_.store(prompt_id, std::memory_order_relaxed); }
    RowId watched() const { return watched_.load(std::memory_order_relaxed); }
    /// Why the engine is held: "", "paused", "breakpoint: rejection at depth <= 1".
    std::string reason() const;
    /// Where the engine is held, or was held last.
    HoldPoint point() const;
    void reset();  ///< for the next run: running, not cancelled; breakpoints stay
    /// While off, nothing holds: rounds of preparation (a measured tree, a baseline) are no steps of the run.
    void set_enabled(bool enabled) { enabled_.store(enabled, std::memory_order_relaxed); }

    // Engine side.
    /// Before the first work of a round, or before a prompt is read: holds when paused, without counting as
    /// the end of a step.
    void at_round_start(HoldPoint::Kind kind = HoldPoint::Kind::before_round);
    void at_level(int level);
    /// After a step was recorded: the rounds of its sequences, any of which may meet a breakpoint.
    void at_round_end(std::span<const RoundEnd> rounds);
    void phase_begins(const SpanEvent& opening) override;
    void phase_ended(const SpanEvent& event) override;
    /// Called on the engine thread just before it waits, with no lock held (publish the round in flight).
    void set_hold_hook(std::function<void(const HoldPoint& point)> hook) { hook_ = std::move(hook); }
    /// Time held since the last call.
    TimeNs take_paused_ns();
    TimeNs paused_ns() const;  ///< the same, left where it is
    /// The stretches held since the last call, in order.
    std::vector<Pause> take_pauses();

  private:
    /// A boundary was reached: holds unless the engine may run to another one. Under the mutex.
    void reach(std::unique_lock<std::mutex>& lock);
    void hold(std::unique_lock<std::mutex>& lock);
    bool may_hold() const {
        return hold_.load(std::memory_order_relaxed) && enabled_.load(std::memory_order_relaxed);
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> hold_{false};  ///< hold at the next matching point; written under the mutex
    std::atomic<bool> cancelled_{false}, enabled_{true};
    std::atomic<RowId> watched_{0};
    GateStep granularity_ = GateStep::round;
    bool holding_ = false;
    std::uint64_t permits_ = 0;           ///< boundaries that the engine may still run to
    std::optional<HoldPoint::Kind> due_;  ///< a phase or level ended: the next phase's begin is its boundary
    HoldPoint point_;
    Breakpoints breakpoints_;
    BreakpointWatch watch_;
    std::string reason_;
    TimeNs paused_ns_ = 0;
    std::vector<Pause> pauses_;
    std::function<void(const HoldPoint&)> hook_;
};

}  // namespace draftscope
