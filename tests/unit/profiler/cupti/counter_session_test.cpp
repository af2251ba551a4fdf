#include "profiler/cupti/counter_session.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "fake_counters.h"

// Tests tier T3 above the library's calls, and the parts of the library that need no GPU.
namespace draftscope {
namespace {

struct Rig {
    FakeCounters* fake;
    CounterSession session;
    PhaseRecorder recorder;

    explicit Rig(std::size_t max_ranges = 100) : Rig(std::make_unique<FakeCounters>(), max_ranges) {}
    Rig(std::unique_ptr<FakeCounters> made, std::size_t max_ranges)
        : fake(made.get()), session(std::move(made), max_ranges) {
        recorder.set_range_sink(&session);
    }
    void phase(Phase id) { const PhaseScope scope(recorder, id); }
    std::vector<CounterReading> take(bool all = true) {
        std::vector<CounterReading> out;
        session.take(out, all);
        return out;
    }
};

TEST(CounterSession, CountsOutermostPhasesWithTheirChildren) {
    Rig rig;
    ASSERT_EQ(rig.session.begin().state, CuptiState::ready);
    const TimeNs before = monotonic_ns();
    {
        const PhaseScope topk(rig.recorder, Phase::topk);
        rig.phase(Phase::softmax);
    }
    rig.phase(Phase::verify);
    const auto readings = rig.take();
    ASSERT_EQ(readings.size(), 2u);
    EXPECT_EQ(readings[0].phase, Phase::topk);
    EXPECT_EQ(readings[1].phase, Phase::verify);
    EXPECT_EQ(readings[0].values, (std::array<double, 3>{0, 1, 2}));
    EXPECT_EQ(readings[1].values, (std::array<double, 3>{10, 11, 12}));
    EXPECT_GE(readings[0].start_ns, before);
    EXPECT_LE(readings[0].start_ns, readings[1].start_ns);
    EXPECT_FALSE(rig.fake->misused);
    EXPECT_EQ(rig.fake->starts, 2) << "it goes on counting";
}

TEST(CounterSession, IsReadBetweenPhasesBeforeRangesRunOut) {
    Rig rig(8);
    ASSERT_EQ(rig.session.begin().state, CuptiState::ready);
    std::size_t read = 0;
    for (int step = 0; step < 50; ++step) {
        for (const Phase phase : {Phase::backbone, Phase::head, Phase::verify}) {
            const PhaseScope scope(rig.recorder, phase);
            EXPECT_TRUE(rig.take().empty());
        }
        read += rig.take(false).size();
    }
    read += rig.take().size();
    EXPECT_EQ(read, 150u);
    const CounterLosses losses = rig.session.take_losses();
    EXPECT_EQ(losses.skipped + losses.dropped, 0u);
    EXPECT_EQ(losses.failure, "");
    EXPECT_FALSE(rig.fake->misused);
    EXPECT_LE(rig.fake->max_seen, 8u);
}

TEST(CounterSession, CountsSkippedAndDroppedRanges) {
    Rig rig(4);
    rig.fake->drop_last = 1;
    ASSERT_EQ(rig.session.begin().state, CuptiState::ready);
    for (int i = 0; i < 7; ++i) rig.phase(Phase::head);
    EXPECT_EQ(rig.take().size(), 3u);
    const CounterLosses losses = rig.session.take_losses();
    EXPECT_EQ(losses.skipped, 3u);
    EXPECT_EQ(losses.dropped, 1u);
    EXPECT_EQ(rig.session.take_losses().skipped, 0u) << "told once";
    EXPECT_FALSE(rig.fake->misused);
}

TEST(CounterSession, EveryRefusalNamesItsState) {
    Rig refused;
    refused.fake->open_answer = {CuptiState::unsupported, "", 0, "", "virtual device", ""};
    EXPECT_EQ(refused.session.begin().state, CuptiState::unsupported);
    refused.phase(Phase::head);
    EXPECT_TRUE(refused.take().empty());
    EXPECT_EQ(refused.fake->starts, 0);

    Rig forbidden;
    forbidden.fake->start_answer = 35;
    const CuptiProbe state = forbidden.session.begin();
    EXPECT_EQ(state.state, CuptiState::no_permission);
    EXPECT_NE(state.remedy.find("NVreg_RestrictProfilingToAdminUsers=0"), std::string::npos);

    Rig busy;
    busy.fake->start_answer = 26;
    EXPECT_EQ(busy.session.begin().state, CuptiState::failed);
    EXPECT_EQ(busy.fake->closes, 1);
}

TEST(CounterSession, FailureStopsCountingAndKeepsReadings) {
    for (const int at : {0, 1, 2}) {
        Rig rig;
        ASSERT_EQ(rig.session.begin().state, CuptiState::ready);
        rig.phase(Phase::head);
        EXPECT_EQ(rig.take().size(), 1u);
        (at == 0 ? rig.fake->push_answer : at == 1 ? rig.fake->pop_answer : rig.fake->stop_answer) = 7;
        for (int i = 0; i < 3; ++i) rig.phase(Phase::verify);
        EXPECT_TRUE(rig.take().empty());
        const CounterLosses losses = rig.session.take_losses();
        EXPECT_NE(losses.failure.find("code 7"), std::string::npos) << at;
        EXPECT_EQ(losses.dropped, at == 2 ? 3u : 0u);
    }
}

TEST(CounterLibrary, NeedsOnePassOnTheChipsOfH100AndH200) {
    const auto api = make_counter_api();
    const CuptiState state = api->probe().state;
    if (state == CuptiState::ready) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        GTEST_SKIP() << "the library opens another one in a way that ends programs with sanitizers";
#endif
        std::string why;
        EXPECT_EQ(api->passes("GH100", gpu_counter_names, why), 1) << why;
        EXPECT_EQ(api->passes("no such chip", gpu_counter_names, why), 0);
        EXPECT_FALSE(why.empty());
    } else {
        EXPECT_TRUE(state == CuptiState::no_library || state == CuptiState::not_built ||
                    state == CuptiState::too_old);
    }
}

TEST(CounterLibrary, ReportsWhatIsMissing) {
    const auto api = make_counter_api("/nowhere/libcupti.so");
    const CuptiState state = api->probe().state;
    EXPECT_TRUE(state == CuptiState::no_library || state == CuptiState::not_built);
    const CuptiProbe opened = make_counter_api()->open(gpu_counter_names, 10);
    EXPECT_FALSE(opened.text.empty());
}

}  // namespace
}  // namespace draftscope
