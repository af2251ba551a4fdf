#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/units.h"
#include "profiler/phase.h"

namespace draftscope {

enum class GateStep { phase, level, round };

struct Breakpoints {
    std::optional<int> rejection_depth;  ///< hold after a round whose accepted count is below this depth
};

/// Holds the engine thread between rounds, levels or phases, and counts the time it was held. The control
/// side may be any thread; the `at_*` side is the engine thread. Cancelling releases a held engine.
class Gate : public PhaseObserver {
  public:
    void pause();
    void resume();
    /// Runs to the end of the next phase, level or round, then holds again.
    void step(GateStep what);
    void cancel();
    bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
    bool paused() const;   ///< asked to hold, or holding
    bool holding() const;  ///< the engine thread is waiting right now
    void set_breakpoints(Breakpoints points);
    /// Why the engine is held: "", "paused", "breakpoint: rejection at depth <= 1".
    std::string reason() const;
    void reset();  ///< for the next run: running, not cancelled

    // Engine side.
    void at_round_start();
    void at_level();
    void at_round_end(int accepted, int tree_depth);
    void phase_ended(const SpanEvent& event) override;
    /// Called on the engine thread just before it waits (publish the round in flight).
    void set_hold_hook(std::function<void(Phase phase, int level)> hook) { hook_ = std::move(hook); }
    /// Time held since the last call.
    TimeNs take_paused_ns();

  private:
    void hold_if(bool here, Phase phase, int level);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool hold_ = false;                    ///< hold at the next matching point
    std::optional<GateStep> granularity_;  ///< where a stepping engine holds; rounds when plain paused
    bool holding_ = false;
    std::uint64_t permits_ = 0;
    std::atomic<bool> cancelled_{false};
    Breakpoints breakpoints_;
    std::string reason_;
    TimeNs paused_ns_ = 0;
    std::function<void(Phase, int)> hook_;
};

}  // namespace draftscope
