#include "capture/queries.h"

#include <gtest/gtest.h>

#include "capture/quantile.h"
#include "tests/support/capture_builder.h"

// Comments derive the expected values by hand. The SQL views are tested with the same values.
namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::round_of;
using testing::span;

constexpr int backbone = 2, router = 3, head = 4, topk = 5, softmax = 6, gather = 7, verify = 10,
              remainder = 13;

const PhaseStats* find_phase(const std::vector<PhaseStats>& rows, int id) {
    for (const PhaseStats& row : rows)
        if (row.phase_id == id) return &row;
    return nullptr;
}

TEST(StepPhases, ParentHasSelfTimeAndTheRestIsRemainder) {
    // topk [30,60) contains softmax [35,50): 15 self time and 15 softmax. Union 10..60 and 70..95 = 75 of
    // 100.
    CaptureBuilder builder;
    builder.step(
        0, 100,
        {span(backbone, 10, 30, 0, 400), span(softmax, 35, 50), span(topk, 30, 60), span(verify, 70, 95)});
    const StepPhases phases = step_phases(builder.snapshot(), 0);
    EXPECT_EQ(phases.ns[backbone], 20);
    EXPECT_EQ(phases.ns[topk], 15);
    EXPECT_EQ(phases.ns[softmax], 15);
    EXPECT_EQ(phases.ns[verify], 25);
    EXPECT_EQ(phases.step_ns, 100);
    EXPECT_EQ(phases.remainder_ns, 25);
    EXPECT_EQ(phases.ns[remainder], 25);
    EXPECT_EQ(phases.bytes[backbone], 400);
}

TEST(StepPhases, RemainderExcludesPausedTime) {
    CaptureBuilder builder;
    builder.step(1000, 2000, {span(verify, 1000, 1100)}, round_of(1), Excluded::paused, 850);
    const StepPhases phases = step_phases(builder.snapshot(), 0);
    EXPECT_EQ(phases.step_ns, 150);
    EXPECT_EQ(phases.remainder_ns, 50);
}

TEST(StepPhases, SideLaneIsExposedOnlyWhereTheCriticalLaneIsIdle) {
    // Router [10,40) on the side lane; critical lane busy in [0,20) and [30,50): 10 of its 30 are exposed.
    CaptureBuilder builder;
    builder.step(0, 50, {span(backbone, 0, 20), span(verify, 30, 50), span(router, 10, 40, 1)});
    const StepPhases phases = step_phases(builder.snapshot(), 0);
    EXPECT_EQ(phases.ns[router], 10);
    EXPECT_EQ(phases.remainder_ns, 10);  // only the critical lane counts
    const auto rows = phase_stats(builder.snapshot(), 1);
    EXPECT_EQ(find_phase(rows, router)->total_ns, 30);
    EXPECT_EQ(find_phase(rows, router)->exposed_ns, 10);
}

TEST(PhaseStats, SampleIsThePhaseWithinOneStep) {
    // Backbone: step 1 has 10 + 20 = 30, step 2 has 50, step 3 none. Steps 100, 100, 200; step 4 is excluded.
    CaptureBuilder builder;
    builder.step(0, 100,
                 {span(backbone, 0, 10, 0, 100), span(backbone, 20, 40, 0, 100), span(verify, 40, 90)});
    builder.step(100, 200, {span(backbone, 100, 150, 0, 200)});
    builder.step(200, 400, {span(verify, 200, 300)});
    builder.step(400, 900, {span(backbone, 400, 900)}, round_of(1), Excluded::warmup);
    const auto rows = phase_stats(builder.snapshot(), 1);

    const PhaseStats& row = *find_phase(rows, backbone);
    EXPECT_EQ(row.count, 2);
    EXPECT_EQ(row.total_ns, 80);
    EXPECT_DOUBLE_EQ(row.median_ns, 40);
    EXPECT_FALSE(row.p90_ns.has_value());
    EXPECT_DOUBLE_EQ(row.share, 80.0 / 400.0);
    EXPECT_DOUBLE_EQ(row.gb_per_s, 400.0 / 80.0);
    // Remainders: 100 - 80 = 20, 100 - 50 = 50, 200 - 100 = 100.
    const PhaseStats& rest = *find_phase(rows, remainder);
    EXPECT_EQ(rest.count, 3);
    EXPECT_EQ(rest.total_ns, 170);
    EXPECT_DOUBLE_EQ(rest.median_ns, 50);
    double shares = 0;
    for (const PhaseStats& each : rows) shares += each.share;
    EXPECT_DOUBLE_EQ(shares, 1.0);
}

TEST(PhaseStats, StepsWithoutSpansGiveNoSample) {
    CaptureBuilder builder;
    builder.step(0, 100, {span(backbone, 0, 40)}, round_of(2, {{"full", HeadMode::drive, 30, 2, 2}}));
    StepRecord bare;
    bare.step.start_ns = 100;
    bare.step.end_ns = 400;
    bare.step.sampled = false;
    bare.rounds = {round_of(3, {{"full", HeadMode::drive, 0, 3, 3}})};
    builder.step(bare);
    const Snapshot snapshot = builder.snapshot();
    const auto rows = phase_stats(snapshot, 1);
    EXPECT_EQ(find_phase(rows, backbone)->count, 1);
    EXPECT_DOUBLE_EQ(find_phase(rows, backbone)->share, 0.4);
    EXPECT_EQ(find_phase(rows, remainder)->count, 1);
    EXPECT_EQ(find_phase(rows, remainder)->total_ns, 60);
    EXPECT_EQ(step_phases(snapshot, 1).remainder_ns, 0);
    EXPECT_EQ(step_phases(snapshot, 1).step_ns, 300);
    const auto heads = head_stats(snapshot, 1);
    ASSERT_EQ(heads.size(), 1u);
    EXPECT_EQ(heads[0].timed_rounds, 1);
    EXPECT_DOUBLE_EQ(heads[0].head_ns_per_round, 30);
    EXPECT_DOUBLE_EQ(heads[0].tau, 2.5);
    EXPECT_EQ(run_totals(snapshot, 1).counted_ns, 400);
}

TEST(PhaseStats, FirstClassPhasesHaveARowEvenWithoutTime) {
    CaptureBuilder builder;
    builder.step(0, 10, {span(verify, 0, 10)});
    const auto rows = phase_stats(builder.snapshot(), 1);
    for (const int id : {backbone, head, topk, gather, verify, remainder})
        EXPECT_NE(find_phase(rows, id), nullptr);
    EXPECT_EQ(find_phase(rows, router), nullptr);
    EXPECT_EQ(find_phase(rows, gather)->count, 0);
    for (const PhaseStats& row : phase_stats(builder.snapshot(), 2)) EXPECT_EQ(row.count, 0);
}

TEST(PhaseStats, P90FromThirtySixSamplesOn) {
    CaptureBuilder builder;
    for (int i = 0; i < 35; ++i)
        builder.step(i * 100, i * 100 + 100, {span(verify, i * 100, i * 100 + 1 + i)});
    EXPECT_FALSE(find_phase(phase_stats(builder.snapshot(), 1), verify)->p90_ns.has_value());
    builder.step(3500, 3600, {span(verify, 3500, 3536)});
    // Samples 1..36: type 7 gives 1 + 0.9 * 35 = 32.5.
    const auto rows = phase_stats(builder.snapshot(), 1);
    EXPECT_DOUBLE_EQ(*find_phase(rows, verify)->p90_ns, 32.5);
    EXPECT_DOUBLE_EQ(find_phase(rows, verify)->median_ns, 18.5);
}

TEST(RunTotals, TauCountsTheBonusAndSpeedIsTotalsOverTotals) {
    CaptureBuilder builder;
    builder.step(0, 1'000'000'000, {}, round_of(3), Excluded::warmup);
    builder.step(1'000'000'000, 3'000'000'000, {}, round_of(1), Excluded::paused, 1'500'000'000);
    builder.step(3'000'000'000, 3'500'000'000, {}, round_of(2), Excluded::shadow);
    builder.end_prompt(7, 500'000'000);
    const RunTotals totals = run_totals(builder.snapshot(), 1);
    EXPECT_EQ(totals.steps, 3);
    EXPECT_EQ(totals.rounds, 3);
    EXPECT_EQ(totals.draft_tokens, 33);
    EXPECT_EQ(totals.accepted, 3);
    EXPECT_EQ(totals.committed, 6);
    EXPECT_EQ(totals.generated, 7);
    EXPECT_DOUBLE_EQ(totals.tau, 2.0);
    EXPECT_DOUBLE_EQ(totals.tau_unclipped, 2.0);
    EXPECT_EQ(totals.decode_ns, 2'000'000'000);  // 1 + 0.5 + 0.5 s
    EXPECT_EQ(totals.tokens_per_second, 0) << "no step counts";
    EXPECT_DOUBLE_EQ(totals.tokens_per_second_e2e, 7.0 / (2.0 + 0.5));
    EXPECT_EQ(totals.excluded_warmup, 1);
    EXPECT_EQ(totals.excluded_paused, 1);
    EXPECT_EQ(totals.excluded_shadow, 1);
}

TEST(RunTotals, BothSpeedsUseTheSameSteps) {
    // Slow warm-up and calibration steps and a fast counted one. Prefill lowers the speed, whatever the
    // excluded steps took.
    CaptureBuilder builder;
    builder.step(0, 9'000'000, {}, round_of(3), Excluded::warmup);
    builder.step(9'000'000, 18'000'000, {}, round_of(3), Excluded::shadow);
    builder.step(18'000'000, 19'000'000, {}, round_of(2));
    builder.end_prompt(9, 2'000'000);
    RunTotals totals = run_totals(builder.snapshot(), 1);
    EXPECT_DOUBLE_EQ(totals.tokens_per_second, 2000);
    EXPECT_DOUBLE_EQ(totals.tokens_per_second_e2e, 9 / (8 / 2000.0 + 0.002));
    // The reverse: fast warm-up.
    CaptureBuilder slow;
    slow.step(0, 1'000'000, {}, round_of(5), Excluded::warmup);
    slow.step(1'000'000, 9'000'000, {}, round_of(1));
    slow.end_prompt(7, 10'000'000);
    totals = run_totals(slow.snapshot(), 1);
    EXPECT_LT(totals.tokens_per_second_e2e, totals.tokens_per_second);
}

TEST(RunTotals, NoRoundsGiveNoSpeed) {
    const RunTotals totals = run_totals(CaptureBuilder().snapshot(), 1);
    EXPECT_EQ(totals.tau, 0);
    EXPECT_EQ(totals.tau_unclipped, 0);
    EXPECT_EQ(totals.tokens_per_second, 0);
}

TEST(HeadStats, AcceptanceIsOverAllRoundsAndTimeOverCountedOnes) {
    CaptureBuilder builder;
    builder.step(0, 500, {}, round_of(2, {{"fr-spec:v=8", HeadMode::drive, 99, 2, 2}}), Excluded::warmup);
    builder.step(500, 620, {span(head, 500, 505), span(head, 510, 515)},
                 round_of(3, {{"fr-spec:v=8", HeadMode::drive, 30, 3, 2, 8, 0.25}}));
    const auto rows = head_stats(builder.snapshot(), 1);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].rounds, 2);
    EXPECT_EQ(rows[0].timed_rounds, 1);
    EXPECT_DOUBLE_EQ(rows[0].tau, 2.5);
    EXPECT_DOUBLE_EQ(*rows[0].coverage, 4.0 / 5.0);
    EXPECT_DOUBLE_EQ(*rows[0].covered_mass, 0.25);
    EXPECT_DOUBLE_EQ(rows[0].head_ns_per_round, 30);
    EXPECT_DOUBLE_EQ(rows[0].bytes_per_call, rows[0].bytes_per_round / 2);
}

TEST(Quantile, InterpolatesLikeNumpy) {
    const std::vector<double> values = {1, 2, 4, 8};
    EXPECT_DOUBLE_EQ(sorted_quantile(values, 0.5), 3.0);
    EXPECT_DOUBLE_EQ(sorted_quantile(values, 0.9), 6.8);
    EXPECT_DOUBLE_EQ(sorted_quantile(values, 1.0), 8.0);
    EXPECT_DOUBLE_EQ(sorted_quantile({}, 0.5), 0.0);
}

/// The engine writes the losslessness of a run's rule into config_json, so readers need no list of rules.
TEST(Losslessness, IsThatOfTheConfigUnlessAnOlderVersionWroteIt) {
    const auto of = [](const char* rule, double temperature, const char* acceptance, std::string config) {
        RunRow run;
        run.verify = rule;
        run.temperature = temperature;
        run.acceptance = acceptance;
        run.config_json = std::move(config);
        return losslessness(run);
    };
    for (const char* known : {"exact", "distribution", "lossy"})
        EXPECT_EQ(of("unknown rule", 1, "real", std::string(R"({"losslessness":")") + known + "\"}"), known);
    // Captures of older versions, and files of others.
    for (const char* config :
         {"{}", "", "no JSON", "[1]", R"({"losslessness":1})", R"({"losslessness":"?"})"}) {
        EXPECT_EQ(of("match", 1, "real", config), "exact") << config;
        EXPECT_EQ(of("typical:epsilon=0.1,delta=0.3", 0, "real", config), "exact") << config;
        EXPECT_EQ(of("pq", 1, "real", config), "distribution") << config;
        EXPECT_EQ(of("typical:epsilon=0.1,delta=0.3", 1, "real", config), "lossy") << config;
        EXPECT_EQ(of("match", 0, "replayed", config), "lossy") << config;
    }
}

}  // namespace
}  // namespace draftscope
