#include "capture/capture.h"

#include <gtest/gtest.h>

#include "capture/queries.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::span;

TEST(Capture, RoundEntriesIndexTheirRows) {
    Capture capture;
    for (int i = 0; i < 2; ++i) {
        StepRecord step;
        step.step.id = i + 1;
        RoundRecord round;
        round.round.id = i + 1;
        round.nodes.resize(3 + static_cast<std::size_t>(i));
        for (std::size_t n = 0; n < round.nodes.size(); ++n) {
            round.nodes[n].round_id = i + 1;
            round.nodes[n].node = static_cast<int>(n);
        }
        round.tops.resize(5);
        round.tokens.resize(2);
        step.rounds.push_back(round);
        capture.apply(step);
    }
    const Snapshot snapshot = capture.snapshot(7);
    EXPECT_EQ(snapshot.version, 7u);
    ASSERT_EQ(snapshot.rounds.size(), 2u);
    const RoundEntry& second = snapshot.rounds[1];
    EXPECT_EQ(second.nodes.first, 3u);
    EXPECT_EQ(second.nodes.count, 4u);
    EXPECT_EQ(second.tops.first, 5u);
    EXPECT_EQ(second.tokens.count, 2u);
    EXPECT_EQ(second.step_index, 1u);
    EXPECT_EQ(snapshot.nodes[second.nodes.first].round_id, 2);
    EXPECT_EQ(snapshot.steps[1].rounds.first, 1u);
}

TEST(Capture, LookupsDoNotAssumeThatIdsStartAtOne) {
    CaptureBuilder builder(nullptr, {.run = 40, .prompt = 40});
    builder.prompt();
    const Snapshot snapshot = builder.snapshot();
    ASSERT_NE(snapshot.run(41), nullptr);
    EXPECT_EQ(snapshot.run(41)->id, 41);
    EXPECT_EQ(snapshot.run(1), nullptr);
    EXPECT_EQ(snapshot.run(0), nullptr);
    ASSERT_NE(snapshot.prompt(41), nullptr);
    EXPECT_EQ(snapshot.prompt(42), nullptr);
    EXPECT_EQ(Snapshot{}.run(1), nullptr);
}

TEST(Capture, PromptTextGrowsWithoutChangingEarlierSnapshots) {
    CaptureBuilder builder;
    PromptProgress progress;
    progress.prompt_id = builder.prompt();
    progress.output = "Rivers";
    progress.generated_tokens = 1;
    progress.prefill_ns = 50;
    progress.tokens.resize(1);
    builder.add(progress);
    const Snapshot before = builder.snapshot();
    progress.output = "Rivers: Rhine";
    progress.tokens.clear();
    builder.add(progress);
    builder.end_prompt(9, 51);

    EXPECT_EQ(before.prompt(1)->output, "Rivers");
    EXPECT_EQ(before.tokens.size(), 1u);
    EXPECT_EQ(builder.snapshot().prompt(1)->generated_tokens, 9);
    EXPECT_EQ(builder.snapshot().prompts.size(), 1u);
}

TEST(Capture, LateSpansAreFoundByTheirStep) {
    CaptureBuilder builder;
    builder.step(0, 100, {span(2, 0, 40)});
    SpansRecorded late;
    late.spans = {span(1, -500, -10), span(10, 40, 90)};
    late.spans[1].step_id = 1;
    builder.add(late);
    const Snapshot snapshot = builder.snapshot();
    ASSERT_EQ(snapshot.late_spans.size(), 1u);  // the prefill span belongs to no step
    const StepPhases phases = step_phases(snapshot, 0);
    EXPECT_EQ(phases.ns[10], 50);
    EXPECT_EQ(phases.remainder_ns, 10);
}

TEST(Capture, RoundInFlightIsRemovedWhenItsStepArrives) {
    CaptureBuilder builder;
    LiveRound live;
    live.active = true;
    live.at.level = 2;
    builder.add(live);
    ASSERT_NE(builder.snapshot().live, nullptr);
    EXPECT_EQ(builder.snapshot().live->at.level, 2);
    builder.step(0, 10);
    EXPECT_EQ(builder.snapshot().live, nullptr);
    builder.add(live);
    live.active = false;
    builder.add(live);
    EXPECT_EQ(builder.snapshot().live, nullptr);
}

TEST(Capture, RoundInFlightIsNotCounted) {
    CaptureBuilder builder;
    builder.step(0, 100);
    const Snapshot before = builder.snapshot();
    LiveRound live;
    live.active = true;
    live.step.id = 2;
    live.step.start_ns = 100;
    live.step.end_ns = 160;
    live.step.excluded = Excluded::paused;
    live.partial.round.id = 2;
    live.partial.round.run_id = 1;
    live.partial.nodes = {NodeRow{}};
    live.spans = {span(2, 110, 150)};
    live.spans[0].run_id = 1;
    live.spans[0].step_id = 2;
    builder.add(live);
    const Snapshot snapshot = builder.snapshot();
    ASSERT_NE(snapshot.in_flight, nullptr);
    const Snapshot& flight = *snapshot.in_flight;
    ASSERT_EQ(flight.steps.size(), 1u);
    EXPECT_EQ(flight.runs.size(), 1u);
    EXPECT_EQ(flight.rounds[0].row.end_ns, 160);
    EXPECT_EQ(flight.tree(0)->nodes.size(), 1u);
    EXPECT_EQ(step_phases(flight, 0).ns[2], 40);
    ASSERT_NE(flight.lanes_for(1), nullptr);
    EXPECT_EQ(flight.lanes_for(1)->end, 160);
    EXPECT_EQ(snapshot.steps.size(), before.steps.size());
    EXPECT_EQ(snapshot.rounds.size(), before.rounds.size());
    EXPECT_EQ(snapshot.spans.size(), before.spans.size());
    builder.step(100, 200);
    EXPECT_EQ(builder.snapshot().in_flight, nullptr);
}

TEST(Capture, RunEndAndVocabulary) {
    Capture capture;
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 3;
    vocab->rows.push_back({3, 0, "a", "a", 0, 10});
    RunStarted started;
    started.run.id = 1;
    started.run.vocab_id = 3;
    started.vocab = vocab;
    capture.apply(started);
    started.run.id = 2;
    capture.apply(started);  // a second run shares the vocabulary
    capture.apply(RunEnded{2, RunEnd::cancelled, 77, {}});
    const Snapshot snapshot = capture.snapshot(1);
    EXPECT_EQ(snapshot.vocabs.size(), 1u);
    ASSERT_NE(snapshot.vocab(3), nullptr);
    EXPECT_EQ(snapshot.vocab(3)->rows[0].text, "a");
    EXPECT_EQ(snapshot.runs[0].ended, RunEnd::live);
    EXPECT_EQ(snapshot.runs[1].ended, RunEnd::cancelled);
    EXPECT_EQ(snapshot.run_end_ns[1], 77);
}

TEST(Capture, SmallTablesKeepEveryRow) {
    Capture capture;
    capture.apply(LossRow{1, 5, "span_ring_full", 3});
    capture.apply(CounterRow{1, 5, "power_w", 70.5});
    capture.apply(NoteRow{1, 2, 5, "odd"});
    capture.apply(std::vector<NvtxRangeRow>(2));
    capture.apply(std::vector<GpuOpRow>(3));
    capture.apply(HeadEvaluated{std::vector<HeadEvalRow>(4)});
    const Snapshot snapshot = capture.snapshot(1);
    ASSERT_EQ(snapshot.losses.size(), 1u);
    EXPECT_EQ(snapshot.losses[0].count, 3);
    EXPECT_EQ(snapshot.counters.size(), 1u);
    EXPECT_EQ(snapshot.notes.size(), 1u);
    EXPECT_EQ(snapshot.nvtx_ranges.size(), 2u);
    EXPECT_EQ(snapshot.gpu_ops.size(), 3u);
    EXPECT_EQ(snapshot.head_evals.size(), 4u);
}

}  // namespace
}  // namespace draftscope
