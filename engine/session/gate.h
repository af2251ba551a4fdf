#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "base/units.h"
#include "engine/session/breakpoints.h"
#include "profiler/phase.h"

namespace draftscope {

enum class GateStep { phase, level, round };

/// Holds the engine thread between rounds, levels or phases, and counts the time it was held. The control
/// side may be any thread; the `at_*` side is the engine thread. Cancelling releases a held engine.
///
/// A plain pause holds at the next round boundary. A step lets the engine reach the next boundary of its kind
/// and holds there; steps asked for while one is under way add up. The end of a round is a boundary for every
/// kind of step, so that its outcome can be looked at.
class Gate : public PhaseObserver {
  public:
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
    void reset();  ///< for the next run: running, not cancelled; breakpoints stay

    // Engine side.
    /// Before the first work of a round: holds when paused, without counting as the end of a step.
    void at_round_start();
    void at_level(int level);
    /// After a step was recorded: the rounds of its sequences, any of which may meet a breakpoint.
    void at_round_end(std::span<const RoundEnd> rounds);
    void phase_ended(const SpanEvent& event) override;
    /// Called on the engine thread just before it waits, with no lock held (publish the round in flight).
    void set_hold_hook(std::function<void(Phase phase, int level)> hook) { hook_ = std::move(hook); }
    /// Time held since the last call.
    TimeNs take_paused_ns();

  private:
    void boundary(GateStep what, Phase phase, int level);
    void hold(std::unique_lock<std::mutex>& lock, Phase phase, int level);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> hold_{false};  ///< hold at the next matching point; written under the mutex
    std::atomic<bool> cancelled_{false};
    std::atomic<RowId> watched_{0};
    GateStep granularity_ = GateStep::round;
    bool holding_ = false;
    std::uint64_t permits_ = 0;  ///< boundaries that the engine may still run to
    Breakpoints breakpoints_;
    BreakpointWatch watch_;
    std::string reason_;
    TimeNs paused_ns_ = 0;
    std::function<void(Phase, int)> hook_;
};

}  // namespace draftscope
