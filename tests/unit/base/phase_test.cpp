#include "base/phase.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace draftscope {
namespace {

TEST(PhaseTable, HasARowForEachPhase) {
    ASSERT_EQ(phase_rows.size(), static_cast<std::size_t>(phase_count));
    for (int i = 0; i < phase_count; ++i) EXPECT_EQ(phase_rows[i].id, i);
    EXPECT_EQ(to_text(Phase::none), "none");
    EXPECT_EQ(to_text(Phase::softmax), "softmax");
    EXPECT_EQ(phase_rows[static_cast<int>(Phase::softmax)].parent_id, static_cast<int>(Phase::topk));
    EXPECT_EQ(to_text(Phase::verify), "verify");
    EXPECT_EQ(static_cast<int>(Phase::remainder), remainder_phase_id);
}

TEST(PhaseTable, NamesAndColoursAreDistinct) {
    std::set<std::string_view> names;
    std::set<std::uint32_t> colours;
    for (const PhaseRow& phase : phase_rows) {
        EXPECT_TRUE(names.insert(phase.name).second) << phase.name;
        EXPECT_TRUE(colours.insert(phase.rgb).second) << phase.name;
    }
}

TEST(PhaseRecorder, ScopeRecordsItsArguments) {
    PhaseRecorder recorder(7);
    recorder.set_round(3);
    {
        PhaseScope outer(recorder, Phase::topk, 2, 4, 100);
        PhaseScope inner(recorder, Phase::softmax, 2, 4, 0, Lane::side);
        inner.add_bytes(11);
        inner.set_rows(5);
    }
    std::vector<SpanEvent> events;
    recorder.drain(events);
    ASSERT_EQ(events.size(), 2u);  // in closing order
    EXPECT_EQ(events[0].phase, Phase::softmax);
    EXPECT_EQ(events[0].depth, 1);
    EXPECT_EQ(events[0].lane, Lane::side);
    EXPECT_EQ(events[0].bytes, 11u);
    EXPECT_EQ(events[0].rows, 5);
    EXPECT_EQ(events[1].phase, Phase::topk);
    EXPECT_EQ(events[1].depth, 0);
    EXPECT_EQ(events[1].round, 3);
    EXPECT_EQ(events[1].level, 2);
    EXPECT_EQ(events[1].bytes, 100u);
    EXPECT_LE(events[1].start_ticks, events[0].start_ticks);
    EXPECT_GE(events[1].end_ticks, events[0].end_ticks);
    EXPECT_EQ(recorder.thread_id(), 7u);
}

TEST(PhaseRecorder, ClosedScopeIsRecordedOnce) {
    PhaseRecorder recorder;
    {
        PhaseScope scope(recorder, Phase::verify);
        scope.close();
        scope.close();
    }
    std::vector<SpanEvent> events;
    recorder.drain(events);
    EXPECT_EQ(events.size(), 1u);
}

TEST(PhaseRecorder, DisabledRecordsNothing) {
    PhaseRecorder recorder;
    recorder.set_enabled(false);
    { PhaseScope scope(recorder, Phase::verify); }
    std::vector<SpanEvent> events;
    recorder.drain(events);
    EXPECT_TRUE(events.empty());
}

TEST(PhaseRecorder, CapacityIsRoundedUpAndAFullRingCountsWhatItDrops) {
    PhaseRecorder recorder(0, 5);  // rounded up to 8
    for (int i = 0; i < 11; ++i) PhaseScope scope(recorder, Phase::head, i);
    std::vector<SpanEvent> events;
    recorder.drain(events);
    ASSERT_EQ(events.size(), 8u);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(events[i].level, i);
    EXPECT_EQ(recorder.take_dropped(), 3u);
    EXPECT_EQ(recorder.take_dropped(), 0u);
    { PhaseScope scope(recorder, Phase::head, 99); }
    events.clear();
    recorder.drain(events);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].level, 99);
}

struct SeenPhases : PhaseObserver {
    std::vector<Phase> begun, ended;
    void phase_begins(const SpanEvent& opening) override {
        EXPECT_EQ(opening.start_ticks, 0u) << "its clock has not started";
        begun.push_back(opening.phase);
    }
    void phase_ended(const SpanEvent& event) override { ended.push_back(event.phase); }
};

TEST(PhaseRecorder, ObserverGetsOutermostScopesOnly) {
    PhaseRecorder recorder;
    SeenPhases seen;
    recorder.set_observer(&seen);
    {
        PhaseScope outer(recorder, Phase::gather);
        PhaseScope inner(recorder, Phase::remap);
    }
    { PhaseScope next(recorder, Phase::verify); }
    EXPECT_EQ(seen.begun, (std::vector<Phase>{Phase::gather, Phase::verify}));
    EXPECT_EQ(seen.ended, (std::vector<Phase>{Phase::gather, Phase::verify}));
}

TEST(PhaseRecorder, AnotherThreadMayDrain) {
    constexpr int count = 20000;
    PhaseRecorder recorder(0, 64);
    std::vector<SpanEvent> events;
    std::atomic<bool> done{false};
    std::thread consumer([&] {
        while (!done.load()) recorder.drain(events);
        recorder.drain(events);
    });
    for (int i = 0; i < count; ++i) {
        recorder.set_round(i);
        PhaseScope scope(recorder, Phase::head);
    }
    done.store(true);
    consumer.join();
    EXPECT_EQ(events.size() + recorder.take_dropped(), static_cast<std::size_t>(count));
    for (std::size_t i = 1; i < events.size(); ++i) ASSERT_LT(events[i - 1].round, events[i].round);
}

}  // namespace
}  // namespace draftscope
