#include "stats/head_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;
using testing::round_of;
using testing::span;

constexpr int head = 4;

/// Conversations of three rounds. Full drafts in the first with T_head 40 and 3 tokens where the live head
/// commits 2; in the step of an older version its time is included, so that it does not count. Counted: steps
/// of 120 and 80, T_head 10 and 30, committed 2 and 3 (covered 2 and 2).
CaptureBuilder calibrated_run(int conversations) {
    CaptureBuilder builder;
    for (int c = 0; c < conversations; ++c) {
        PromptRow prompt;
        prompt.ordinal = c;
        prompt.external_id = std::to_string(c);
        builder.prompt(prompt);
        const TimeNs at = 1000 * c;
        builder.step(at, at + 500, {},
                     round_of(2, {{"fr-spec:v=8", HeadMode::drive, 99, 2, 2},
                                  {"full", HeadMode::calibration, 40, 3, 3, 64}}),
                     Excluded::shadow);
        builder.step(at + 500, at + 620, {span(head, at + 500, at + 505), span(head, at + 510, at + 515)},
                     round_of(2, {{"fr-spec:v=8", HeadMode::drive, 10, 2, 2, 8, 0.75}}));
        builder.step(at + 620, at + 700, {span(head, at + 620, at + 625), span(head, at + 630, at + 635)},
                     round_of(3, {{"fr-spec:v=8", HeadMode::drive, 30, 3, 2, 8, 0.25}}));
    }
    return builder;
}

TEST(HeadCosts, CalibrationServesAsFullReference) {
    const auto rows = head_costs(calibrated_run(6).snapshot(), 1);
    ASSERT_EQ(rows.size(), 2u);
    const HeadComparison& live = rows[0];
    EXPECT_EQ(live.stats.head, "fr-spec:v=8");
    EXPECT_EQ(live.stats.mode, HeadMode::drive);
    EXPECT_EQ(live.reference, FullReference::calibration);
    EXPECT_TRUE(live.estimate);
    // Acceptance uses all rounds; rho_tau uses the round in which both heads ran.
    EXPECT_EQ(live.stats.rounds, 18);
    EXPECT_EQ(live.stats.timed_rounds, 12);
    EXPECT_DOUBLE_EQ(live.stats.tau, 7.0 / 3);
    EXPECT_DOUBLE_EQ(live.cost.tau->value, 7.0 / 3);
    EXPECT_DOUBLE_EQ(live.cost.rho_tau->value, 2.0 / 3.0);
    EXPECT_DOUBLE_EQ(live.cost.nu->value, 20.0 / 40.0);
    // T_non-head = (200 - 40) / 2 = 80 per round; kappa = 40 / 80.
    EXPECT_DOUBLE_EQ(live.cost.kappa->value, 0.5);
    EXPECT_DOUBLE_EQ(live.cost.predicted->value, predicted_speedup(2.0 / 3, 0.5, 0.5));
    EXPECT_FALSE(live.cost.measured);
    EXPECT_DOUBLE_EQ(*live.stats.coverage, 6.0 / 7);
    EXPECT_DOUBLE_EQ(*live.stats.covered_mass, 0.5);
    EXPECT_DOUBLE_EQ(live.stats.bytes_per_call, live.stats.bytes_per_round / 2);  // two head spans per round
    EXPECT_TRUE(live.cost.rho_tau->interval && live.cost.tau->interval);
    EXPECT_EQ(live.no_interval, "");

    const HeadComparison& full = rows[1];
    EXPECT_EQ(full.stats.mode, HeadMode::calibration);
    EXPECT_FALSE(full.estimate);
    EXPECT_EQ(full.stats.tau, 0) << "a few rounds of each text have no tau";
    EXPECT_FALSE(full.cost.tau);
    EXPECT_DOUBLE_EQ(full.cost.rho_tau->value, 1.0);
    EXPECT_DOUBLE_EQ(full.cost.nu->value, 1.0);
    EXPECT_DOUBLE_EQ(full.cost.predicted->value, 1.0);
    EXPECT_DOUBLE_EQ(full.stats.active_rows, 64);
    EXPECT_FALSE(full.stats.covered_mass.has_value());

    // Time that the bytes explain at the full head's rate, out of 20 ns; the rest is the constant part.
    ASSERT_TRUE(live.bytes && full.bytes);
    const double explained = live.stats.bytes_per_round / full.stats.bytes_per_round;
    EXPECT_DOUBLE_EQ(live.bytes->explained, explained);
    EXPECT_DOUBLE_EQ(live.bytes->constant_ns, 20 - explained * 40);
    EXPECT_DOUBLE_EQ(live.bytes->times, 0.5 / explained);
    EXPECT_DOUBLE_EQ(live.bytes->per_second, live.stats.bytes_per_round / 20e-9);
    EXPECT_DOUBLE_EQ(full.bytes->times, 1.0);
    EXPECT_DOUBLE_EQ(full.bytes->constant_ns, 0.0);
}

TEST(HeadCosts, AFewCalibrationRoundsGiveNoRatioOfAcceptance) {
    const auto rows = head_costs(calibrated_run(5).snapshot(), 1);
    ASSERT_EQ(rows.size(), 2u);
    for (const HeadComparison& one : rows) {
        EXPECT_FALSE(one.cost.rho_tau || one.cost.predicted || one.cost.break_even_nu) << one.stats.head;
        EXPECT_DOUBLE_EQ(one.cost.kappa->value, 0.5);
        EXPECT_THAT(one.no_interval, HasSubstr("calibration rounds in 5 conversations are too few"));
        EXPECT_THAT(one.no_interval, HasSubstr("--shadow full"));
    }
    EXPECT_DOUBLE_EQ(rows[0].cost.nu->value, 0.5);
}

/// A full head that followed some of the texts is compared over those. Calibration rounds then say nothing.
TEST(HeadCosts, SelfPacedHeadsOfSomeTextsAreComparedOverThose) {
    CaptureBuilder builder = calibrated_run(3);
    HeadEvalRow full;
    full.run_id = 1;
    full.head = "full";
    full.mode = HeadMode::selfpaced;
    full.head_ns = 40;
    full.round_id = builder.snapshot().rounds[2].row.id;  // the first conversation: 7 tokens in 3 rounds
    for (const int committed : {4, 3}) {
        full.committed = committed;
        builder.add(HeadEvaluated{{full}});
    }
    builder.step(5000, 5100, {}, round_of(1, {{"fr-spec:v=8", HeadMode::drive, 10, 1, 1}}));
    const auto rows = head_costs(builder.snapshot(), 1);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_DOUBLE_EQ(rows[0].cost.rho_tau->value, 2.0 / 3);
    EXPECT_EQ(rows[0].reference, FullReference::selfpaced);
    EXPECT_FALSE(rows[0].estimate);
    EXPECT_DOUBLE_EQ(rows[1].stats.tau, 3.5);
    EXPECT_EQ(rows[2].stats.mode, HeadMode::calibration);
    EXPECT_FALSE(rows[2].cost.rho_tau || rows[2].cost.nu || rows[2].cost.predicted);
}

TEST(HeadTraffic, UsesTheProbeOfEachKindOfRead) {
    HeadStats stats;
    stats.head = "specvocab";
    stats.bytes_per_round = 9000;
    stats.bytes_per_call = 3000;  // three calls per round
    stats.head_ns_per_round = 1500;
    RunRow run;
    run.config_json = R"({"head_streamed_bytes": {"specvocab": 1000}})";
    HeadTraffic reads = head_traffic(run, stats);
    EXPECT_DOUBLE_EQ(reads.streamed, 3000);
    EXPECT_DOUBLE_EQ(reads.gathered, 6000);
    EXPECT_FALSE(reads.explained_ns);  // no probe was run
    run.machine_json = R"({"read_gb_per_s":20.0})";
    EXPECT_FALSE(head_traffic(run, stats).explained_ns);  // no probe of scattered rows
    run.machine_json = R"({"read_gb_per_s":20.0,"scattered_read_gb_per_s":10.0})";
    reads = head_traffic(run, stats);
    EXPECT_DOUBLE_EQ(*reads.explained_ns, 3000 / 20.0 + 6000 / 10.0);
    EXPECT_DOUBLE_EQ(reads.times(), 2.0);
    EXPECT_DOUBLE_EQ(reads.constant_ns(), 750);
    // A head without scattered rows streams all its bytes.
    stats.head = "full";
    reads = head_traffic(run, stats);
    EXPECT_DOUBLE_EQ(reads.gathered, 0);
    EXPECT_DOUBLE_EQ(*reads.explained_ns, 450);
    // Without recorded calls, the bytes are not divided and no time is explained.
    stats.head = "specvocab";
    stats.bytes_per_call = 0;
    EXPECT_FALSE(head_traffic(run, stats).explained_ns);
    // config_json of another program, or none.
    for (const char* config :
         {"", "{", "[]", R"({"head_streamed_bytes": 3})", R"({"head_streamed_bytes": {"specvocab": "x"}})"}) {
        run.config_json = config;
        EXPECT_DOUBLE_EQ(head_traffic(run, stats).streamed, 9000) << config;
    }
}

TEST(HeadCosts, RatiosNeedAFullHead) {
    CaptureBuilder builder;
    builder.step(0, 100, {}, round_of(2, {{"fr-spec:v=8", HeadMode::drive, 10, 2, 1}}));
    const auto rows = head_costs(builder.snapshot(), 1);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].reference, FullReference::none);
    EXPECT_FALSE(rows[0].cost.rho_tau || rows[0].cost.nu || rows[0].cost.kappa || rows[0].cost.predicted);
    EXPECT_FALSE(rows[0].bytes);
    EXPECT_DOUBLE_EQ(*rows[0].stats.coverage, 0.5);
    EXPECT_TRUE(head_costs(builder.snapshot(), 9).empty());
}

TEST(HeadCosts, FullDrivingIsItsOwnReference) {
    CaptureBuilder builder;
    RunRow run;
    run.head = "full";
    builder.run(run);
    builder.step(0, 100, {}, round_of(2, {{"full", HeadMode::drive, 20, 2, 2}}));
    const auto rows = head_costs(builder.snapshot(), 1);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].reference, FullReference::drive);
    EXPECT_DOUBLE_EQ(rows[0].cost.nu->value, 1.0);
    EXPECT_DOUBLE_EQ(rows[0].cost.kappa->value, 0.25);
    EXPECT_DOUBLE_EQ(rows[0].cost.measured->value, 1.0);
    EXPECT_DOUBLE_EQ(rows[0].cost.unexplained->value, 0.0);
}

/// Warm-up rounds are rounds of the text, so tau of the driving head includes them, like that of a self-paced
/// head.
TEST(HeadCosts, SelfPacedHeadsAreComparedOverTheWholeText) {
    CaptureBuilder builder;
    const auto step = [&](TimeNs start, int committed, Excluded excluded) {
        builder.step(start, start + 100, {},
                     round_of(committed, {{"fr-spec:v=8", HeadMode::drive, 10, committed, committed}}),
                     excluded);
    };
    step(0, 1, Excluded::warmup);
    step(100, 1, Excluded::shadow);
    step(200, 4, Excluded::no);
    HeadEvalRow full;
    full.run_id = 1;
    full.head = "full";
    full.mode = HeadMode::selfpaced;
    full.head_ns = 40;
    full.round_id = builder.snapshot().rounds[2].row.id;
    for (const int committed : {3, 3}) {
        full.committed = committed;
        builder.add(HeadEvaluated{{full}});
    }
    const auto rows = head_costs(builder.snapshot(), 1);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_DOUBLE_EQ(rows[0].cost.rho_tau->value, 2.0 / 3);  // 6 tokens in three rounds and in two
    EXPECT_DOUBLE_EQ(rows[0].cost.nu->value, 0.25);
    EXPECT_FALSE(rows[0].estimate);
    EXPECT_EQ(rows[0].reference, FullReference::selfpaced);
    EXPECT_DOUBLE_EQ(rows[0].cost.kappa->value, 40.0 / 90);  // from the counted step
}

/// Conversations of two turns. Each turn has a calibration round and a counted one.
Snapshot calibrated_conversations(int conversations, int with_calibration) {
    CaptureBuilder builder;
    TimeNs now = 0;
    for (int c = 0; c < conversations; ++c)
        for (int turn = 0; turn < 2; ++turn) {
            PromptRow prompt;
            prompt.ordinal = 2 * c + turn;
            prompt.external_id = std::to_string(c);
            prompt.turn = turn;
            builder.prompt(prompt);
            const int committed = 2 + c % 2;
            const testing::Eval live = {"fr-spec:v=8", HeadMode::drive, 100 + c, committed, 0};
            const testing::Eval full = {"full", HeadMode::calibration, 400, 3, 0};
            now += 1000;
            if (c < with_calibration) {
                builder.step(now, now + 900, {}, round_of(committed, {live, full}), Excluded::shadow);
                now += 1000;
            }
            builder.step(now, now + 900, {}, round_of(committed, {live}));
        }
    return builder.snapshot();
}

TEST(HeadCosts, IntervalsResampleConversations) {
    // Ten turns are five conversations: too few for intervals.
    HeadComparison live = head_costs(calibrated_conversations(5, 5), 1)[0];
    EXPECT_EQ(live.cost.conversations, 5u);
    EXPECT_FALSE(live.cost.tau->interval || live.cost.rho_tau || live.cost.nu->interval);
    EXPECT_THAT(live.no_interval, HasSubstr("in 5 conversations"));
    live = head_costs(calibrated_conversations(6, 6), 1)[0];
    ASSERT_TRUE(live.cost.rho_tau->interval && live.cost.nu->interval && live.cost.kappa->interval);
    EXPECT_EQ(live.no_interval, "");
    EXPECT_LT(live.cost.rho_tau->interval->low, live.cost.rho_tau->value);
    // If only the first conversations have calibration rounds, tau has an interval and the comparison has
    // none.
    live = head_costs(calibrated_conversations(9, 3), 1)[0];
    EXPECT_EQ(live.cost.conversations, 3u);
    EXPECT_TRUE(live.cost.tau->interval);
    EXPECT_FALSE(live.cost.rho_tau || live.cost.nu->interval || live.cost.predicted);
    EXPECT_THAT(live.no_interval, HasSubstr("calibration rounds in 3 conversations are too few"));
    // The full head compared with itself is 1, without an interval.
    EXPECT_FALSE(head_costs(calibrated_conversations(6, 6), 1)[1].cost.rho_tau->interval);
}

class AnotherRun : public ::testing::Test {
  protected:
    /// A run of the full head: 4 tokens in one step of 200 with T_head 40.
    void add_full_run(RowId id, const std::string& drafter, const std::string& text,
                      const std::string& settings = "{}", std::uint64_t seed = 0) {
        RunRow run;
        run.config_json = settings;
        run.seed = seed;
        run.id = id;
        run.head = "full";
        run.target = "tiny";
        run.drafter = drafter;
        builder_.run(run);
        PromptRow prompt;
        prompt.text = text;
        builder_.prompt(prompt);
        builder_.step(0, 200, {}, round_of(4, {{"full", HeadMode::drive, 40, 4, 0}}));
    }
    CaptureBuilder builder_;
};

TEST_F(AnotherRun, IsAReferenceIfOnlyTheHeadDiffers) {
    builder_.step(0, 100, {}, round_of(2, {{"fr-spec:v=8", HeadMode::drive, 10, 2, 2}}));
    const std::string text = builder_.snapshot().prompts.front()->text;
    add_full_run(2, "another", text);
    EXPECT_EQ(head_costs(builder_.snapshot(), 1)[0].reference, FullReference::none);
    add_full_run(3, "", text + "of another prompt");
    EXPECT_EQ(head_costs(builder_.snapshot(), 1)[0].reference, FullReference::none);
    add_full_run(4, "", text);
    const auto rows = head_costs(builder_.snapshot(), 1);
    EXPECT_EQ(rows[0].reference, FullReference::other_run);
    EXPECT_FALSE(rows[0].estimate);
    EXPECT_DOUBLE_EQ(rows[0].cost.rho_tau->value, 0.5);
    EXPECT_DOUBLE_EQ(rows[0].cost.nu->value, 0.25);
    EXPECT_DOUBLE_EQ(rows[0].cost.kappa->value, 40.0 / 160);  // from the full head's own rounds
    EXPECT_DOUBLE_EQ(rows[0].cost.measured->value, (2.0 / 100) / (4.0 / 200));
    EXPECT_DOUBLE_EQ(rows[0].cost.unexplained->value, 1.0 - predicted_speedup(0.5, 0.25, 0.25));
}

TEST_F(AnotherRun, IsNoReferenceWithAnotherLength) {
    builder_.step(0, 100, {}, round_of(2, {{"fr-spec:v=8", HeadMode::drive, 10, 2, 2}}));
    const std::string text = builder_.snapshot().prompts.front()->text;
    for (const char* settings : {R"({"max_new": 8})", R"({"ignore_eos": true})", R"({"model_hash": "ab"})"})
        add_full_run(static_cast<RowId>(builder_.snapshot().runs.size()) + 1, "", text, settings);
    const auto alone = head_costs(builder_.snapshot(), 1);
    EXPECT_EQ(alone[0].reference, FullReference::none);
    EXPECT_FALSE(alone[0].cost.rho_tau);
    EXPECT_FALSE(alone[0].cost.measured);
    add_full_run(8, "", text, "{}", 1);
    add_full_run(9, "", text, "{}", 2);
    const auto rows = head_costs(builder_.snapshot(), 1);
    EXPECT_EQ(rows[0].reference, FullReference::other_run);
    EXPECT_DOUBLE_EQ(rows[0].cost.rho_tau->value, 0.5) << "8 tokens in two rounds of two seeds";
}

}  // namespace
}  // namespace draftscope
