#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/gui/models/activity.h"
#include "app/gui/models/phases.h"
#include "app/gui/models/rounds.h"
#include "app/gui/models/selection.h"
#include "app/gui/models/text.h"
#include "app/gui/models/timeline.h"
#include "base/phase.h"
#include "tests/gui/synthetic.h"
#include "tests/support/capture_builder.h"

/// Tests of the models while the engine is paused inside a round.
namespace draftscope::test {
namespace {

using ::testing::HasSubstr;

/// Three finished rounds of run 1 and a fourth round, paused after its second level.
struct Held {
    Capture capture;
    SyntheticRun run;
    UiState ui;

    Held() {
        run.begin(capture);
        for (int i = 0; i < 3; ++i) run.advance(capture);
        sync_selection(capture.snapshot(1), ui);
    }
    Snapshot hold(int level) {
        capture.apply(run.live_round(level));
        const Snapshot snapshot = capture.snapshot(2);
        sync_selection(snapshot, ui);
        return snapshot;
    }
};

TEST(Stepping, RoundInFlightIsTheNewestOfTheSelection) {
    Held held;
    EXPECT_EQ(held.ui.round, 2u);
    const Snapshot snapshot = held.hold(1);
    EXPECT_TRUE(in_flight_selected(snapshot, held.ui));
    EXPECT_FALSE(held.ui.round.has_value()) << "a finished round is not selected, too";
    EXPECT_EQ(round_position(snapshot, held.ui), "Round 4 in progress");
    step_selection(snapshot, held.ui, -1);
    EXPECT_EQ(held.ui.round, 2u);
    EXPECT_FALSE(held.ui.follow);
    sync_selection(snapshot, held.ui);
    EXPECT_EQ(held.ui.round, 2u) << "the selected round stays selected";
    EXPECT_EQ(round_position(snapshot, held.ui), "Round 3 of 3");
    step_selection(snapshot, held.ui, 1);
    EXPECT_TRUE(in_flight_selected(snapshot, held.ui));
    held.run.advance(held.capture);
    const Snapshot finished = held.capture.snapshot(3);
    sync_selection(finished, held.ui);
    EXPECT_FALSE(held.ui.in_flight);
    EXPECT_EQ(held.ui.round, 3u) << "the former round in flight";
}

TEST(Stepping, NoStatisticCountsTheRoundInFlight) {
    Held held;
    const Snapshot before = held.capture.snapshot(1);
    const Snapshot snapshot = held.hold(1);
    EXPECT_EQ(run_totals(snapshot, 1).rounds, run_totals(before, 1).rounds);
    EXPECT_EQ(PhasesBuilder().build(snapshot, 1).caption, PhasesBuilder().build(before, 1).caption);
    EXPECT_EQ(header_numbers(snapshot, 1).tau, header_numbers(before, 1).tau);
}

TEST(Stepping, RoundsAndPhasesShowTheRoundSoFar) {
    Held held;
    const Snapshot snapshot = held.hold(1);
    RoundsModel rounds;
    update_rounds(rounds, snapshot, 1);
    const auto cell = cell_in_flight(rounds, snapshot, held.ui);
    ASSERT_TRUE(cell.has_value());
    EXPECT_EQ(cell->ordinal, 4);
    EXPECT_EQ(cell->depth, 2);
    EXPECT_EQ(cell->dominant_phase, static_cast<int>(Phase::backbone));
    EXPECT_THAT(describe_in_flight(*cell, *snapshot.in_flight), HasSubstr("Round 4, in progress"));
    const PhaseBars bars = build_phase_bars(*snapshot.in_flight, 1, 0, 1, 1);
    ASSERT_EQ(bars.bars.size(), 1u);
    EXPECT_GT(bars.bars[0].part_ns[static_cast<std::size_t>(Phase::head)], 0);
    EXPECT_EQ(bars.bars[0].part_ns[static_cast<std::size_t>(Phase::verify)], 0);
    auto flight = run_lanes(*snapshot.in_flight, 1);
    EXPECT_FALSE(flight->empty());
    EXPECT_EQ(cell_in_flight(rounds, held.capture.snapshot(1), UiState()), std::nullopt);
}

TEST(Stepping, NewRunIsSelectedOnceItHasARound) {
    Held held;
    held.run.end(held.capture, RunEnd::ok);
    sync_selection(held.capture.snapshot(3), held.ui);
    SyntheticOptions options;
    options.run_id = 2;
    SyntheticRun next(options);
    next.begin(held.capture);
    const Snapshot reading = held.capture.snapshot(4);
    sync_selection(reading, held.ui);
    EXPECT_EQ(held.ui.run_id, 1) << "a run in prefill is not selected";
    EXPECT_EQ(held.ui.round, 2u);
    EXPECT_EQ(prefill_text(reading), "prefill (prompt tokens: 31)");
    held.capture.apply(next.live_round(0));
    const Snapshot drafting = held.capture.snapshot(5);
    sync_selection(drafting, held.ui);
    EXPECT_EQ(held.ui.run_id, 2);
    EXPECT_TRUE(in_flight_selected(drafting, held.ui));
    EXPECT_EQ(round_position(drafting, held.ui), "Round 1 in progress");
    EXPECT_EQ(prefill_text(drafting), "");
}

TEST(Stepping, ShowsWhereTheEngineIsPaused) {
    const auto id = [](Phase phase) { return static_cast<int>(phase); };
    using Kind = HoldPoint::Kind;
    const auto text = [&](Kind kind, Phase done, int level, Phase next, int next_level) {
        return hold_text({kind, 12, id(done), level, 412'000, id(next), next_level}, "paused", Snapshot());
    };
    EXPECT_EQ(text(Kind::after_phase, Phase::head, 2, Phase::topk, 2),
              "paused after head, level 2 (412 us); next: topk");
    EXPECT_EQ(text(Kind::after_phase, Phase::gather, 1, Phase::backbone, 2),
              "paused after gather, level 1 (412 us); next: backbone, level 2");
    EXPECT_EQ(text(Kind::after_phase, Phase::prefill, 0, Phase::backbone, 0),
              "paused after prefill (412 us); next: backbone, catch-up");
    EXPECT_EQ(text(Kind::after_level, Phase::topk, 2, Phase::rerank, 0),
              "paused after level 2; next: rerank");
    EXPECT_EQ(text(Kind::after_round, Phase::commit, 0, Phase::none, 0), "paused after round 12");
    EXPECT_EQ(text(Kind::before_prefill, Phase::none, 0, Phase::none, 0), "paused before prefill");
    HoldPoint end{.kind = Kind::after_round, .round = 5};
    EXPECT_EQ(hold_text(end, "breakpoint: end of text", Snapshot()),
              "paused after round 5: breakpoint: end of text");
}

RunRow run_row(std::string drafter, int batch, std::string config) {
    RunRow row;
    row.drafter = std::move(drafter);
    row.batch = batch;
    row.config_json = std::move(config);
    return row;
}

/// A batch of two prompts whose first two steps have a round of each.
struct Batch {
    testing::CaptureBuilder builder;
    std::vector<RowId> prompts;

    Batch() {
        builder.run(run_row("ngram", 2, R"({"prompts": 5})"));
        for (int i = 0; i < 2; ++i) {
            PromptRow row;
            row.ordinal = i;
            prompts.push_back(builder.prompt(row));
        }
        for (int s = 0; s < 2; ++s) {
            StepRecord step;
            for (const RowId prompt : prompts) step.rounds.emplace_back().round.prompt_id = prompt;
            builder.step(std::move(step));
        }
    }
};

TEST(Stepping, ABreakpointSelectsTheSequenceThatHitIt) {
    Batch batch;
    const Snapshot snapshot = batch.builder.snapshot();
    UiState ui;
    sync_selection(snapshot, ui);
    EXPECT_EQ(ui.round, 3u);
    ui.stopped_prompt = batch.prompts[0];
    sync_selection(snapshot, ui);
    EXPECT_EQ(ui.round, 2u);
    EXPECT_TRUE(ui.follow);
    EXPECT_EQ(round_position(snapshot, ui), "Round 3 of 4, prompt 1");
    EXPECT_EQ(prompt_to_show(snapshot, ui), batch.prompts[0]) << "and Text shows its text";
    ui.stopped_prompt = 99;
    sync_selection(snapshot, ui);
    EXPECT_EQ(ui.round, 3u) << "it has ended";
    HoldPoint point{.kind = HoldPoint::Kind::after_round, .round = 2, .prompt_id = batch.prompts[0]};
    EXPECT_EQ(hold_text(point, "breakpoint: end of text", snapshot),
              "paused after step 2, prompt 1: breakpoint: end of text");
}

TEST(Stepping, PromptsAreCountedAgainstThePlannedOnes) {
    Batch batch;
    const Snapshot snapshot = batch.builder.snapshot();
    EXPECT_THAT(build_text(snapshot, batch.prompts[1]).caption, HasSubstr("prompt 2 of 5"));
}

TEST(Stepping, ABaselineDoesNotTakeTheSelection) {
    const RunRow plain = run_row("none", 1, R"({"role": "baseline"})");
    testing::CaptureBuilder builder;
    builder.run(plain);
    builder.step(0, 10);
    UiState ui;
    sync_selection(builder.snapshot(), ui);
    EXPECT_EQ(ui.run_id, 1) << "until there is another run";
    builder.run(run_row("ngram", 1, "{}"));
    builder.step(20, 30);
    sync_selection(builder.snapshot(), ui);
    EXPECT_EQ(ui.run_id, 2);
    builder.run(plain);
    builder.step(40, 50);
    sync_selection(builder.snapshot(), ui);
    EXPECT_EQ(ui.run_id, 2);
}

/// Makes a round of a chain with `depth` drafts, of which `accepted` are kept; `rejected`: probability of the
/// first one that is not.
RoundRecord chain_round(int depth, int accepted, double rejected) {
    RoundRecord made;
    made.round.tree_depth = depth;
    made.round.accepted = accepted;
    made.nodes.push_back(testing::node(0, -1, 0, 1, 1, true));
    for (int d = 1; d <= depth; ++d)
        made.nodes.push_back(
            testing::node(d, d - 1, d, 1, d == accepted + 1 ? rejected : 0.9, d <= accepted));
    return made;
}

TEST(Stepping, AnInstructiveRejectionIsDeepAndLikely) {
    testing::CaptureBuilder builder;
    const auto add = [&](RoundRecord round) { builder.step(0, 10, {}, std::move(round)); };
    add(chain_round(3, 3, 0));
    add(chain_round(3, 1, 0.8));
    EXPECT_FALSE(instructive_rejection(builder.snapshot(), 1)) << "the last round ends the text";
    add(chain_round(3, 2, 0.3));
    add(chain_round(3, 2, 0.6));
    add(chain_round(3, 2, 0.5));
    RoundRecord clipped = chain_round(4, 3, 0.9);
    clipped.round.clipped = true;
    add(std::move(clipped));
    add(chain_round(3, 0, 0.9));
    EXPECT_EQ(instructive_rejection(builder.snapshot(), 1), 3u);
    EXPECT_FALSE(instructive_rejection(builder.snapshot(), 2));
}

TEST(Stepping, EmptyChartsExplainWhy) {
    EXPECT_EQ(no_rounds_text(false), "No finished rounds yet.");
    EXPECT_EQ(no_rounds_text(true), "No rounds in the range.");
}

}  // namespace
}  // namespace draftscope::test
