#include "stats/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/support/capture_builder.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;
using testing::span;
using testing::token;

constexpr const char* one_machine = R"({"cpu": "X", "cores": 2, "isa": "avx2"})";

struct Shape {
    int prompts = 20;
    double head_ns = 300'000, verify_ns = 600'000, backbone_ns = 100'000;
    int tree_nodes = 4;
    int committed = 2;
    double fewer = 0;  ///< share of the rounds that commit one token less
    double noise = 0.03;
    std::uint64_t seed = 1;
    RunRow run;
};

RunRow usual_run() {
    RunRow run;
    run.id = 1;
    run.target = "tiny";
    run.head = "full";
    run.drafter = "eagle2";
    run.tree = "chain=3";
    run.machine_json = one_machine;
    run.ended = RunEnd::ok;
    return run;
}

/// Prompts of different weight: a backbone of 100 us, the head and verification, 20 rounds each.
Snapshot make_run(const Shape& shape) {
    CaptureBuilder builder;
    builder.run(shape.run.id == 0 ? usual_run() : shape.run);
    Rng weights(99), rng(shape.seed), chance(shape.seed + 77);
    TimeNs now = 0;
    for (int p = 0; p < shape.prompts; ++p) {
        PromptRow prompt;
        prompt.external_id = std::to_string(p);
        prompt.text = "prompt " + std::to_string(p);
        builder.prompt(prompt);
        const double weight = 0.5 + weights.uniform();
        for (int r = 0; r < 20; ++r) {
            const int committed = shape.committed - (chance.uniform() < shape.fewer ? 1 : 0);
            const auto jitter = [&] { return 1 + shape.noise * (2 * rng.uniform() - 1); };
            const auto backbone = static_cast<TimeNs>(shape.backbone_ns * weight * jitter());
            const auto head = static_cast<TimeNs>(shape.head_ns * weight * jitter());
            const auto verify = static_cast<TimeNs>(shape.verify_ns * weight * jitter());
            const TimeNs to_head = now + backbone, to_verify = to_head + head, end = to_verify + verify;
            RoundRecord round;
            round.round.committed = committed;
            round.round.tree_nodes = shape.tree_nodes;
            round.tokens.assign(static_cast<std::size_t>(committed), token(7 * p + r, 0));
            builder.step(now, end,
                         {span(2, now, to_head), span(4, to_head, to_verify), span(10, to_verify, end)},
                         round);
            now = end;
        }
    }
    builder.add(RunEnded{1, RunEnd::ok, now, {}});
    return builder.snapshot();
}

Comparison compared(const Snapshot& a, const Snapshot& b, bool force = false) {
    CompareOptions options;
    options.force = force;
    options.bootstrap.resamples = 500;
    auto out = compare_runs(a, 1, b, 1, options);
    EXPECT_TRUE(is_ok(out));
    return out.ok() ? *out : Comparison();
}

const ComparedQuantity& phase(const Comparison& c, const std::string& name) {
    for (const ComparedQuantity& one : c.phases)
        if (one.name == name) return one;
    ADD_FAILURE() << name;
    return c.speed;
}

TEST(Compare, AttributesAFasterHead) {
    Shape a, b;
    b.head_ns = 100'000;
    b.seed = 2;
    b.run = usual_run();
    b.run.head = "slimspec:rank=72";
    const Comparison c = compared(make_run(a), make_run(b));
    EXPECT_EQ(c.pairs, 20u);
    EXPECT_EQ(c.same_tokens, 20u);
    EXPECT_NEAR(c.speed.ratio.value, 1000.0 / 800.0, 0.02);
    ASSERT_TRUE(c.speed.ratio.interval);
    EXPECT_TRUE(c.speed.ratio.interval->contains(1.25)) << c.speed.ratio.interval->low;
    EXPECT_EQ(c.speed.change, Change::better);
    EXPECT_DOUBLE_EQ(c.tau.ratio.value, 1);
    EXPECT_EQ(c.tau.change, Change::none_shown);
    EXPECT_EQ(phase(c, "head").change, Change::better);
    EXPECT_NEAR(phase(c, "head").ratio.value, 1.0 / 3, 0.02);
    EXPECT_EQ(phase(c, "verify").change, Change::none_shown);
    ASSERT_EQ(c.differences.size(), 1u);
    EXPECT_EQ(c.differences[0].what, "head");
    EXPECT_THAT(c.verdict, HasSubstr("faster than A (95 % interval"));
    EXPECT_THAT(c.verdict, HasSubstr("tau stays the same"));
    EXPECT_THAT(c.verdict,
                ::testing::ContainsRegex(
                    "most of the change in head \\([0-9]+ us less, the whole round [0-9]+ us less\\)"));
    EXPECT_TRUE(c.warnings.empty()) << c.warnings[0];
}

TEST(Compare, VerdictMatchesTheTauRow) {
    Shape a, b;
    a.fewer = b.fewer = 0.2;
    b.seed = 2;
    const Comparison same = compared(make_run(a), make_run(b));
    ASSERT_EQ(same.tau.change, Change::none_shown);
    EXPECT_THAT(same.verdict, HasSubstr("tau shows no change ("));
    b.fewer = 0.6;
    const Comparison less = compared(make_run(a), make_run(b));
    ASSERT_EQ(less.tau.change, Change::worse);
    EXPECT_THAT(less.verdict, HasSubstr("tau falls by "));
}

TEST(Compare, FalsePositiveRateIsNominal) {
    int shown = 0;
    for (std::uint64_t seed = 10; seed < 50; seed += 2) {
        Shape a, b;
        a.prompts = b.prompts = 15;
        a.seed = seed;
        b.seed = seed + 1;
        shown += compared(make_run(a), make_run(b)).speed.change == Change::none_shown ? 0 : 1;
    }
    EXPECT_LE(shown, 4);  // 20 comparisons at 5 %: more than 4 occur in 3 of 1000 cases
}

TEST(Compare, FewPromptsGetNoInterval) {
    Shape a, b;
    a.prompts = b.prompts = 3;
    b.head_ns = 100'000;
    const Comparison c = compared(make_run(a), make_run(b));
    EXPECT_FALSE(c.speed.ratio.interval);
    EXPECT_EQ(c.speed.change, Change::no_interval);
    EXPECT_THAT(c.verdict, HasSubstr("3 conversations: intervals need at least 6"));
}

TEST(Compare, IncomparableRunsNeedForce) {
    const Snapshot a = make_run({});
    const auto refused = [&](RunRow run, const char* reason) {
        Shape shape;
        shape.run = run;
        const Snapshot b = make_run(shape);
        const auto result = compare_runs(a, 1, b, 1);
        ASSERT_FALSE(result.ok()) << reason;
        EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
        EXPECT_THAT(result.error().message, HasSubstr(reason));
        const Comparison forced = compared(a, b, true);
        EXPECT_TRUE(forced.forced);
        ASSERT_FALSE(forced.warnings.empty());
        EXPECT_THAT(forced.warnings[0], HasSubstr("FORCED"));
    };
    RunRow run = usual_run();
    run.tier = "T2";
    refused(run, "tier (T0 and T2)");
    run = usual_run();
    run.synthetic = true;
    refused(run, "weights (real and synthetic)");
    run = usual_run();
    run.acceptance = "replayed";
    refused(run, "acceptance");
    run = usual_run();
    run.target = "other";
    refused(run, "target (tiny and other)");
    run = usual_run();
    run.machine_json = R"({"cpu": "Y", "cores": 2, "isa": "avx2"})";
    refused(run, "CPU (X and Y)");
    run = usual_run();
    run.temperature = 1;
    refused(run, "temperature (0 and 1)");
}

TEST(Compare, MachineDifferencesAreNotAttributedToTheHead) {
    Shape a, b;
    b.seed = 2;
    b.head_ns = 1.5 * a.head_ns;
    b.verify_ns = 1.5 * a.verify_ns;
    b.backbone_ns = 1.5 * a.backbone_ns;
    const Comparison slower = compared(make_run(a), make_run(b));
    ASSERT_TRUE(slower.machine && slower.machine->differs);
    EXPECT_TRUE(*slower.machine->differs);
    EXPECT_NEAR(slower.machine->ratio.value, 1.5, 0.02);
    ASSERT_TRUE(slower.adjusted_speed && slower.adjusted_speed->interval);
    EXPECT_NEAR(slower.adjusted_speed->value, 1, 0.02);
    EXPECT_TRUE(slower.adjusted_speed->interval->contains(1));
    EXPECT_THAT(slower.verdict, HasSubstr("The machine was slower while B ran"));
    EXPECT_THAT(slower.verdict,
                ::testing::StartsWith("No difference in speed beyond the machine's is shown"));
    EXPECT_THAT(slower.verdict, HasSubstr("As measured: B is 3"));
    // In addition, a faster head.
    b.head_ns = 0.75 * a.head_ns;
    const Comparison both = compared(make_run(a), make_run(b));
    ASSERT_TRUE(both.adjusted_speed && both.adjusted_speed->interval);
    EXPECT_NEAR(both.adjusted_speed->value, 1000.0 / 850, 0.03);
    EXPECT_GT(both.adjusted_speed->interval->low, 1);
    EXPECT_THAT(both.verdict, ::testing::Not(HasSubstr("No difference")));
}

TEST(Compare, MachineControlNeedsEqualVerification) {
    Shape a, b;
    b.seed = 2;
    b.verify_ns = 1.5 * a.verify_ns;
    b.run = usual_run();
    b.run.threads = 2;
    EXPECT_FALSE(compared(make_run(a), make_run(b)).machine) << "other threads verify at another speed";
    b.run = usual_run();
    b.tree_nodes = a.tree_nodes + 1;
    EXPECT_FALSE(compared(make_run(a), make_run(b)).machine) << "no tree is equal";
    b.tree_nodes = a.tree_nodes;
    a.prompts = b.prompts = 5;
    const Comparison few = compared(make_run(a), make_run(b));
    ASSERT_TRUE(few.machine);
    EXPECT_FALSE(few.machine->differs);
    EXPECT_THAT(few.warnings, ::testing::Contains(HasSubstr("the machine may have differed")));
    b.verify_ns = 1.02 * a.verify_ns;
    a.prompts = b.prompts = 20;
    a.noise = b.noise = 0.001;
    const Comparison near = compared(make_run(a), make_run(b));
    ASSERT_TRUE(near.machine && near.machine->differs);
    EXPECT_FALSE(*near.machine->differs) << "a head may leave other caches behind";
    ASSERT_TRUE(near.adjusted_speed && near.adjusted_speed->interval);
    EXPECT_THAT(near.verdict, HasSubstr("Relative to verification of equal trees"));
}

TEST(Compare, RejectsOtherTextsAndReportsOtherSettings) {
    const auto shaped = [](const char* settings) {
        Shape shape;
        shape.run = usual_run();
        shape.run.config_json = settings;
        return shape;
    };
    const Snapshot a = make_run(shaped(R"({"max_new": 8, "ignore_eos": false, "raw": false})"));
    for (const auto& [settings, reason] :
         {std::pair{R"({"max_new": 64, "ignore_eos": false, "raw": false})", "max-new (8 and 64)"},
          {R"({"max_new": 8, "ignore_eos": true, "raw": false})", "ignore-eos (false and true)"},
          {R"({"max_new": 8, "ignore_eos": false, "raw": true})", "raw (false and true)"},
          {R"({"max_new": 8, "system_hash": "12"})", "system turn (none and 12)"}}) {
        const auto refused = compare_runs(a, 1, make_run(shaped(settings)), 1);
        ASSERT_FALSE(refused.ok()) << reason;
        EXPECT_THAT(refused.error().message, HasSubstr(reason));
    }
    Shape other = shaped(R"({"max_new": 8})");  // lacks the other fields
    other.run.threads = 2;
    other.run.head = "microspec";
    other.run.seed = 7;
    const Comparison c = compared(a, make_run(other));
    EXPECT_FALSE(c.forced);
    EXPECT_THAT(c.warnings, ::testing::Contains(HasSubstr("threads (1 and 2)")));
}

TEST(Compare, PairsByNameAndText) {
    Shape shape;
    shape.prompts = 12;
    const Snapshot a = make_run(shape);
    shape.prompts = 9;
    const Snapshot fewer = make_run(shape);
    const Comparison c = compared(a, fewer);
    EXPECT_EQ(c.pairs, 9u);
    EXPECT_EQ(c.only_a, 3u);
    EXPECT_EQ(c.only_b, 0u);
    EXPECT_THAT(c.warnings[0], HasSubstr("3 of A's prompts"));
    Snapshot other = make_run(shape);
    for (auto& prompt : other.prompts) {
        PromptRow changed = *prompt;
        changed.text = "something else";
        prompt = std::make_shared<const PromptRow>(changed);
    }
    const auto none = compare_runs(a, 1, other, 1);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message,
                ::testing::AllOf(HasSubstr("no prompt in common"), HasSubstr("--max-new")));
    EXPECT_FALSE(compare_runs(a, 1, a, 7).ok());
}

TEST(Compare, ReportsDifferentTokens) {
    Shape a, b;
    b.committed = 3;
    const Comparison c = compared(make_run(a), make_run(b));
    EXPECT_EQ(c.same_tokens, 0u);
    EXPECT_NEAR(c.tau.ratio.value, 1.5, 1e-9);
    EXPECT_THAT(c.warnings[0], HasSubstr("20 of 20 prompts have different tokens"));
}

TEST(CompareText, MarksPhasesOfOneRun) {
    ComparedQuantity gather;
    gather.name = "gather";
    gather.unit = "us per round";
    gather.phase_id = 5;
    gather.b = 8.9;
    EXPECT_EQ(compare_cells(gather)[3], "-");
    EXPECT_EQ(compare_cells(gather)[5], "only in B");
    std::swap(gather.a, gather.b);
    EXPECT_EQ(compare_cells(gather)[5], "only in A");
    gather.b = gather.a;
    EXPECT_EQ(compare_cells(gather)[5], "too few conversations");
}

}  // namespace
}  // namespace draftscope
