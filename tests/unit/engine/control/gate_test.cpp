#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "engine/control/debug_gate.h"

namespace draftscope {
namespace {

/// Waits for a state that another thread will reach. The limit only ends the test if the gate is broken.
template <typename Condition>
bool eventually(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > limit) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

/// An engine whose rounds have two levels of two phases each, then verify and commit.
class Engine {
  public:
    explicit Engine(DebugGate& gate, int rounds) : gate_(gate) {
        gate_.set_hold_hook([this](const HoldPoint&) { ++holds; });
        thread_ = std::thread([this, rounds] { run(rounds); });
    }
    ~Engine() {
        gate_.cancel();
        thread_.join();
        gate_.set_hold_hook({});
    }
    bool held_at(int round, int level, int phase) const {
        return gate_.holding() && at_round == round && at_level == level && at_phase == phase;
    }

    std::atomic<int> at_round{-1}, at_level{-1}, at_phase{-1}, holds{0};
    std::atomic<bool> finished{false};
    std::atomic<TimeNs> paused{0};

  private:
    void phase(Phase what, int level) {
        SpanEvent event{.round = at_round, .level = static_cast<std::int16_t>(level), .phase = what};
        gate_.phase_begins(event);
        ++at_phase;
        at_level = level;
        gate_.phase_ended(event);
    }
    void run(int rounds) {
        for (int r = 0; r < rounds && !gate_.cancelled(); ++r) {
            gate_.at_round_start();
            at_phase = -1;
            at_round = r;
            for (int level = 0; level < 2; ++level) {
                phase(Phase::backbone, level);
                phase(Phase::head, level);
                gate_.at_level(level);
            }
            phase(Phase::verify, 0);
            phase(Phase::commit, 0);
            at_level = -1;
            at_phase = -2;
            const RoundEnd end{r % 3, 2};
            gate_.at_round_end({&end, 1});
        }
        paused = gate_.take_paused_ns();
        finished = true;
    }

    DebugGate& gate_;
    std::thread thread_;
};

TEST(DebugGate, NeverStopsUnlessPaused) {
    DebugGate gate;
    Engine engine(gate, 100);
    EXPECT_TRUE(eventually([&] { return engine.finished.load(); }));
    EXPECT_EQ(engine.holds, 0);
    EXPECT_EQ(engine.paused, 0);
    EXPECT_EQ(gate.reason(), "");
}

TEST(DebugGate, PauseBeforeTheFirstRoundStopsAndMeasuresTheTime) {
    DebugGate gate;
    gate.pause();
    EXPECT_TRUE(gate.paused());
    EXPECT_FALSE(gate.holding());
    Engine engine(gate, 3);
    ASSERT_TRUE(eventually([&] { return gate.holding(); }));
    EXPECT_EQ(engine.at_round, -1);
    EXPECT_EQ(gate.reason(), "paused");
    gate.resume();
    EXPECT_TRUE(eventually([&] { return engine.finished.load(); }));
    EXPECT_FALSE(gate.paused());
    EXPECT_GT(engine.paused, 0);
    EXPECT_EQ(engine.holds, 1);
}

TEST(DebugGate, StepsARoundALevelAndAPhase) {
    DebugGate gate;
    gate.pause();
    Engine engine(gate, 50);
    ASSERT_TRUE(eventually([&] { return gate.holding(); }));
    gate.step(StepGranularity::round);
    ASSERT_TRUE(eventually([&] { return engine.held_at(0, -1, -2); }));
    gate.step(StepGranularity::level);
    ASSERT_TRUE(eventually([&] { return engine.held_at(1, 0, 1); }));
    gate.step(StepGranularity::level);
    ASSERT_TRUE(eventually([&] { return engine.held_at(1, 1, 3); }));
    gate.step(StepGranularity::level);  // the end of the round also ends the last level's step
    ASSERT_TRUE(eventually([&] { return engine.held_at(1, -1, -2); }));
    for (int phase = 0; phase < 4; ++phase) {
        gate.step(StepGranularity::phase);
        ASSERT_TRUE(eventually([&] { return engine.held_at(2, phase / 2, phase); })) << phase;
    }
    gate.step(StepGranularity::round);
    ASSERT_TRUE(eventually([&] { return engine.held_at(2, -1, -2); }));
}

TEST(DebugGate, ReportsTheLastAndTheNextPhase) {
    DebugGate gate;
    gate.pause();
    Engine engine(gate, 50);
    ASSERT_TRUE(eventually([&] { return gate.holding(); }));
    EXPECT_EQ(gate.point().kind, HoldPoint::Kind::before_round);
    const auto point_after = [&](StepGranularity what) {
        gate.step(what);
        EXPECT_TRUE(eventually([&] { return gate.holding(); }));
        HoldPoint point = gate.point();
        point.phase_ns = 0;
        return point;
    };
    const auto id = [](Phase phase) { return static_cast<int>(phase); };
    using Kind = HoldPoint::Kind;
    EXPECT_EQ(point_after(StepGranularity::phase),
              (HoldPoint{Kind::after_phase, 1, id(Phase::backbone), 0, 0, id(Phase::head), 0}));
    EXPECT_EQ(point_after(StepGranularity::phase),
              (HoldPoint{Kind::after_phase, 1, id(Phase::head), 0, 0, id(Phase::backbone), 1}));
    EXPECT_EQ(point_after(StepGranularity::level),
              (HoldPoint{Kind::after_level, 1, id(Phase::head), 1, 0, id(Phase::verify), 0}));
    EXPECT_EQ(point_after(StepGranularity::phase),
              (HoldPoint{Kind::after_phase, 1, id(Phase::verify), 0, 0, id(Phase::commit), 0}));
    EXPECT_EQ(point_after(StepGranularity::phase),
              (HoldPoint{Kind::after_round, 1, id(Phase::commit), 0, 0, 0, 0}))
        << "the last phase's end is the round's";
    EXPECT_EQ(point_after(StepGranularity::phase).round, 2);
}

TEST(DebugGate, NeverStopsWhileDisabled) {
    DebugGate gate;
    gate.step(StepGranularity::round);
    gate.set_enabled(false);
    {
        Engine preparation(gate, 5);
        EXPECT_TRUE(eventually([&] { return preparation.finished.load(); }));
        EXPECT_EQ(preparation.holds, 0);
    }
    gate.reset();
    gate.set_enabled(false);
    gate.step(StepGranularity::round);
    gate.set_enabled(true);
    Engine engine(gate, 5);
    EXPECT_TRUE(eventually([&] { return engine.held_at(0, -1, -2); })) << "the step is still to be done";
}

TEST(DebugGate, ReportsPauses) {
    DebugGate gate;
    gate.pause();
    {
        Engine engine(gate, 2);
        ASSERT_TRUE(eventually([&] { return gate.holding(); }));
        gate.step(StepGranularity::round);
        ASSERT_TRUE(eventually([&] { return engine.held_at(0, -1, -2); }));
        gate.resume();
        ASSERT_TRUE(eventually([&] { return engine.finished.load(); }));
    }
    const std::vector<DebugGate::Pause> pauses = gate.take_pauses();
    ASSERT_EQ(pauses.size(), 2u);
    EXPECT_LE(pauses[0].start_ticks, pauses[0].end_ticks);
    EXPECT_LE(pauses[0].end_ticks, pauses[1].start_ticks);
    EXPECT_TRUE(gate.take_pauses().empty());
}

TEST(DebugGate, PendingStepsAddUp) {
    DebugGate gate;
    gate.pause();
    Engine engine(gate, 50);
    ASSERT_TRUE(eventually([&] { return gate.holding(); }));
    for (int i = 0; i < 5; ++i) gate.step(StepGranularity::round);
    ASSERT_TRUE(eventually([&] { return engine.held_at(4, -1, -2); }));
}

TEST(DebugGate, BreakpointHoldsAfterARoundRejectedEarly) {
    DebugGate gate;
    gate.set_breakpoints({.rejection_depth = 1});
    Engine engine(gate, 50);  // accepts 0, 1, 2, 0, 1, 2, ... of depth 2
    ASSERT_TRUE(eventually([&] { return engine.held_at(0, -1, -2); }));
    EXPECT_EQ(gate.reason(), "breakpoint: rejection at depth <= 1");
    gate.resume();
    EXPECT_TRUE(eventually([&] { return engine.held_at(3, -1, -2); }));
    gate.set_breakpoints({.rejection_depth = 2});
    gate.resume();
    EXPECT_TRUE(eventually([&] { return engine.held_at(4, -1, -2); }));
    gate.resume();  // a fully accepted round has no rejection
    EXPECT_TRUE(eventually([&] { return engine.held_at(6, -1, -2); }));
    gate.set_breakpoints({});
    gate.resume();
    EXPECT_TRUE(eventually([&] { return engine.finished.load(); }));
}

TEST(DebugGate, CancelReleasesAHeldEngine) {
    DebugGate gate;
    gate.pause();
    Engine engine(gate, 50);
    ASSERT_TRUE(eventually([&] { return gate.holding(); }));
    gate.cancel();
    EXPECT_TRUE(eventually([&] { return engine.finished.load(); }));
    EXPECT_TRUE(gate.cancelled());
    gate.reset();
    EXPECT_FALSE(gate.cancelled());
    EXPECT_FALSE(gate.paused());
}

TEST(DebugGate, TheHookRunsBeforeTheEngineWaitsAndMayCallTheGate) {
    DebugGate gate;
    std::vector<HoldPoint> seen;
    gate.set_hold_hook([&](const HoldPoint& point) {
        EXPECT_FALSE(gate.holding());
        seen.push_back(point);
        gate.resume();
    });
    gate.step(StepGranularity::phase);
    SpanEvent event{.level = 3, .phase = Phase::topk};
    gate.phase_ended(event);
    EXPECT_TRUE(seen.empty()) << "what comes next is not known yet";
    event.phase = Phase::backbone;
    event.level = 4;
    gate.phase_begins(event);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].phase_id, static_cast<int>(Phase::topk));
    EXPECT_EQ(seen[0].level, 3);
    EXPECT_EQ(seen[0].next_phase_id, static_cast<int>(Phase::backbone));
    EXPECT_EQ(seen[0].next_level, 4);
    EXPECT_GT(gate.take_paused_ns(), 0);
    EXPECT_EQ(gate.take_paused_ns(), 0);
}

TEST(DebugGate, ControlsFromSeveralThreadsNeverLeaveTheEngineStuck) {
    DebugGate gate;
    Engine engine(gate, 2000);
    std::vector<std::thread> users;
    for (int u = 0; u < 3; ++u) {
        users.emplace_back([&gate, u] {
            for (int i = 0; i < 300; ++i) {
                if ((i + u) % 3 == 0) gate.pause();
                if ((i + u) % 3 == 1) gate.step(static_cast<StepGranularity>(i % 3));
                if ((i + u) % 3 == 2) gate.resume();
            }
        });
    }
    for (std::thread& user : users) user.join();
    gate.resume();
    EXPECT_TRUE(eventually([&] { return engine.finished.load(); }));
}

}  // namespace
}  // namespace draftscope
