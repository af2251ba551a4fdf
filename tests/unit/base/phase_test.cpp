#include "base/phase.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/phase_names.h"

namespace draftscope {
namespace {

TEST(PhaseTable, AgreesWithTheStoredPhases) {
    ASSERT_EQ(phase_table().size(), phase_rows.size());
    for (std::size_t i = 0; i < phase_rows.size(); ++i) {
        const PhaseInfo& info = phase_table()[i];
        EXPECT_EQ(static_cast<int>(info.id), phase_rows[i].id);
        EXPECT_EQ(info.name, phase_rows[i].name);
        EXPECT_EQ(static_cast<int>(info.parent), phase_rows[i].parent_id);
        EXPECT_EQ(info.rgb, phase_rows[i].rgb);
        EXPECT_EQ(info.what.empty(), info.id == Phase::none) << info.name;
    }
    EXPECT_EQ(phase_table()[static_cast<std::size_t>(Phase::verify)].name, "verify");
    EXPECT_EQ(static_cast<int>(Phase::remainder), remainder_phase_id);
}

TEST(PhaseTable, NamesAndColoursAreDistinct) {
    std::set<std::string_view> names;
    std::set<std::uint32_t> colours;
    for (const PhaseInfo& info : phase_table()) {
        EXPECT_TRUE(names.insert(info.name).second) << info.name;
        EXPECT_TRUE(colours.insert(info.rgb).second) << info.name;
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
