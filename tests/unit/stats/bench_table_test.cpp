#include "stats/bench_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace draftscope {
namespace {

/// Rounds that commit `committed` tokens in `ns` of counted time, `head_ns` of it in the head.
HeadSample unit(double rounds, double committed, double ns, double head_ns = 0) {
    return {rounds, committed, rounds, committed, head_ns, ns};
}

/// Plain decoding takes 10 per token; the other methods take the times given below.
BenchSamples samples() {
    BenchSamples out;
    out.prompts = {{"maths", 0}, {"maths", 0}, {"code", 1}};
    BenchMethodSamples plain, full, half;
    plain.units = {{unit(10, 10, 100), unit(20, 20, 200), unit(10, 10, 100)}};
    full.units = {{unit(5, 10, 80, 20), unit(10, 20, 160, 40), unit(4, 10, 50, 16)}};
    half.units = {{unit(6, 10, 75, 6), unit(11, 20, 140, 11), unit(5, 10, 60, 5)}};
    plain.active_rows = {0, 0, 0};
    full.active_rows = {500, 1000, 400};
    half.active_rows = {60, 110, 50};
    plain.row_tokens = plain.active_rows;
    full.row_tokens = full.active_rows;
    half.row_tokens = {30, 55, 25};
    full.full = half.full = 1;
    out.methods = {plain, full, half};
    out.plain = 0;
    return out;
}

TEST(BenchTable, SumsThenDividesOverAllAndByCategory) {
    const BenchTable table = bench_table(samples());
    ASSERT_EQ(table.categories, (std::vector<std::string>{"maths", "code"}));
    ASSERT_EQ(table.rows.size(), 3u);
    const BenchRow& full = table.rows[1];
    EXPECT_EQ(full.all.prompts, 3u);
    EXPECT_DOUBLE_EQ(full.all.tau, 40.0 / 19);
    EXPECT_DOUBLE_EQ(full.all.tokens_per_second, 1e9 * 40 / 290);
    EXPECT_DOUBLE_EQ(full.all.speedup->value, 400.0 / 290);
    EXPECT_DOUBLE_EQ(full.all.active_rows, 100);
    EXPECT_DOUBLE_EQ(full.all.row_tokens, 100);
    EXPECT_DOUBLE_EQ(table.rows[2].all.row_tokens, 5);
    EXPECT_DOUBLE_EQ(full.categories[0].speedup->value, 300.0 / 240);
    EXPECT_DOUBLE_EQ(full.categories[1].speedup->value, 100.0 / 50);
    EXPECT_EQ(full.categories[0].prompts, 2u);
    EXPECT_DOUBLE_EQ(table.rows[0].all.speedup->value, 1);
    EXPECT_FALSE(full.all.speedup->interval);  // two conversations
    EXPECT_FALSE(full.all.speedup_sd);         // one repetition
}

TEST(BenchTable, CostModelUsesTheMatchingFullHead) {
    const BenchTable table = bench_table(samples());
    EXPECT_FALSE(table.rows[0].cost.tau);
    const AcceptanceCost& cost = table.rows[2].cost;
    EXPECT_DOUBLE_EQ(cost.rho_tau->value, (40.0 / 22) / (40.0 / 19));
    EXPECT_DOUBLE_EQ(cost.nu->value, 1.0 / 4);
    EXPECT_DOUBLE_EQ(cost.kappa->value, 4.0 / ((290.0 - 76) / 19));
    EXPECT_DOUBLE_EQ(cost.measured->value, (40.0 / 275) / (40.0 / 290));
    EXPECT_DOUBLE_EQ(cost.unexplained->value, cost.measured->value - cost.predicted->value);
    EXPECT_DOUBLE_EQ(table.rows[1].cost.rho_tau->value, 1);
}

TEST(BenchTable, RepetitionsGiveASpreadAndOneSum) {
    BenchSamples two = samples();
    for (BenchMethodSamples& method : two.methods) method.units.push_back(method.units.front());
    for (HeadSample& one : two.methods[2].units[1]) one.step_ns *= 2;
    two.methods[2].prefill_ns = {{0, 0, 0}, {275, 275, 275}};
    const BenchTable table = bench_table(two);
    EXPECT_NEAR(*table.rows[1].all.speedup_sd, 0, 1e-12);
    const double first = 400.0 / 275, second = 400.0 / 550;
    EXPECT_NEAR(*table.rows[2].all.speedup_sd, std::abs(first - second) / std::sqrt(2.0), 1e-12);
    const double with_prefill = 400.0 / (550 + 825);
    EXPECT_NEAR(*table.rows[2].all.end_to_end_speedup_sd, std::abs(first - with_prefill) / std::sqrt(2.0),
                1e-12);
    EXPECT_NEAR(*table.rows[2].all.end_to_end_tokens_per_second_sd,
                1e8 * std::abs(first - with_prefill) / std::sqrt(2.0), 1e-3);
    EXPECT_NEAR(*table.rows[2].all.tau_unclipped_sd, 0, 1e-12);
    EXPECT_DOUBLE_EQ(table.rows[2].all.speedup->value, (80.0 / 825) / (80.0 / 800));
    EXPECT_DOUBLE_EQ(table.rows[2].all.active_rows, 10);
    EXPECT_EQ(table.rows[2].all.prompts, 3u);
}

TEST(BenchTable, RatioUsesCommonPrompts) {
    BenchSamples part = samples();
    part.methods[2].units[0][1] = {};
    const BenchTable table = bench_table(part);
    EXPECT_EQ(table.rows[2].all.prompts, 2u);
    EXPECT_DOUBLE_EQ(table.rows[2].all.speedup->value, (20.0 / 135) / (20.0 / 200));
    EXPECT_DOUBLE_EQ(table.rows[2].cost.rho_tau->value, (20.0 / 11) / (20.0 / 9));
}

TEST(BenchTable, IntervalsComeFromConversations) {
    BenchSamples many;
    BenchMethodSamples plain, other;
    plain.units.emplace_back();
    other.units.emplace_back();
    for (std::size_t c = 0; c < 12; ++c)
        for (int turn = 0; turn < 2; ++turn) {
            many.prompts.push_back({"", c});
            plain.units[0].push_back(unit(10, 10, 100));
            other.units[0].push_back(unit(5, 10, c % 2 == 0 ? 50 : 100));
            plain.active_rows.push_back(0);
            other.active_rows.push_back(0);
        }
    plain.row_tokens = other.row_tokens = plain.active_rows;
    many.methods = {plain, other};
    many.plain = 0;
    const Estimate speedup = *bench_table(many).rows[1].all.speedup;
    ASSERT_TRUE(speedup.interval);
    EXPECT_DOUBLE_EQ(speedup.value, 200.0 / 150);
    // Twelve draws of 1 or 2 with equal probability: usually four to eight slow ones.
    EXPECT_LT(speedup.interval->low, 1.25);
    EXPECT_GT(speedup.interval->low, 1.05);
    EXPECT_GT(speedup.interval->high, 1.45);
    EXPECT_LT(speedup.interval->high, 1.8);
    const auto constant = bench_table(many).rows[1].all.tau_interval;
    ASSERT_TRUE(constant) << "every conversation has a tau of 2";
    EXPECT_NEAR(constant->low, 2, 1e-9);
    EXPECT_NEAR(constant->high, 2, 1e-9);
    for (std::size_t p = 0; p < other.units[0].size(); ++p)
        if (many.prompts[p].conversation % 2 == 0) many.methods[1].units[0][p].rounds = 10;
    for (HeadSample& one : many.methods[1].units[0]) one.accepted = one.rounds == 10 ? 0 : 5;
    const BenchCell& cell = bench_table(many).rows[1].all;
    ASSERT_TRUE(cell.tau_interval);
    EXPECT_DOUBLE_EQ(cell.tau, 4.0 / 3);
    EXPECT_LT(cell.tau_interval->low, 1.25);
    EXPECT_GT(cell.tau_interval->low, 1.05);
    EXPECT_GT(cell.tau_interval->high, 1.45);
    ASSERT_TRUE(cell.tau_unclipped_interval);
    EXPECT_LT(cell.tau_unclipped_interval->low, cell.tau_unclipped);
    EXPECT_GT(cell.tau_unclipped_interval->high, cell.tau_unclipped);
    // Without a plain method there is no ratio.
    many.plain.reset();
    EXPECT_FALSE(bench_table(many).rows[1].all.speedup);
    EXPECT_GT(bench_table(many).rows[1].all.tokens_per_second, 0);
}

TEST(BenchTable, MeansOfTasksWeighTasksAlike) {
    BenchSamples some = samples();
    some.prompts[2].category = "coding";  // of MT-Bench
    const double accepted[] = {4, 9, 6};
    for (int p = 0; p < 3; ++p) some.methods[2].units[0][p].accepted = accepted[p];
    const BenchTable table = bench_table(some);
    ASSERT_EQ(table.tasks, (std::vector<std::string>{"maths", "Conv."}));
    const BenchMacro& half = table.rows[2].macro;
    EXPECT_DOUBLE_EQ(*half.tau, (30.0 / 17 + 10.0 / 5) / 2);
    EXPECT_DOUBLE_EQ(half.speedup->value, (300.0 / 215 + 100.0 / 60) / 2);
    EXPECT_DOUBLE_EQ(*half.tokens_per_second, 1e9 * (30.0 / 215 + 10.0 / 60) / 2);
    EXPECT_FALSE(half.tau_sd);
    EXPECT_DOUBLE_EQ(half.tau_unclipped->value, (1 + 13.0 / 17 + 1 + 6.0 / 5) / 2)
        << "a draft that the end of the text cut off counts";
    EXPECT_EQ(task_of_category("GSM8K"), "Math");
    EXPECT_EQ(task_of_category("math_reasoning"), "Math");
    EXPECT_EQ(task_of_category("HumanEval"), "Code");
    EXPECT_EQ(task_of_category("mine"), "mine");
}

TEST(BenchTable, EndToEndSpeedIncludesPrefill) {
    BenchSamples some = samples();
    some.methods[0].prefill_ns = {{20, 0, 20}};
    some.methods[2].prefill_ns = {{40, 0, 20}};
    const BenchTable table = bench_table(some);
    EXPECT_DOUBLE_EQ(table.rows[2].all.end_to_end_tokens_per_second, 1e9 * 40 / (275 + 60));
    EXPECT_DOUBLE_EQ(table.rows[2].all.end_to_end_speedup->value, 440.0 / 335);
    EXPECT_DOUBLE_EQ(table.rows[2].all.speedup->value, 400.0 / 275);
    // Prefill counts in the proportion of the steps that count.
    for (HeadSample& one : some.methods[2].units[0]) one.timed_committed /= 2, one.step_ns /= 2;
    EXPECT_DOUBLE_EQ(bench_table(some).rows[2].all.end_to_end_tokens_per_second, 1e9 * 40 / (275 + 60));
}

/// Twelve conversations: `near` is a little slower than `fast`, `slow` clearly.
TEST(BenchTable, PairsSayWhatDiffersFromTheBest) {
    BenchSamples many;
    BenchMethodSamples fast, near, slow;
    for (BenchMethodSamples* method : {&fast, &near, &slow}) method->resize(1, 12);
    for (std::size_t c = 0; c < 12; ++c) {
        many.prompts.push_back({"", c});
        fast.units[0][c] = unit(5, 10, 100);
        near.units[0][c] = unit(5, 10, c % 2 == 0 ? 80 : 124);
        slow.units[0][c] = unit(5, 10, c % 2 == 0 ? 190 : 210);
    }
    many.methods = {fast, near, slow};
    many.control = near;
    const BenchTable table = bench_table(many);
    EXPECT_EQ(table.best, 0u);
    ASSERT_EQ(table.pairs.size(), 3u);
    EXPECT_FALSE(table.against_best(0));
    EXPECT_NEAR(table.against_best(1)->ratio.value, 1200.0 / 1224, 1e-12);
    EXPECT_EQ(table.against_best(1)->differs(), false);
    EXPECT_NEAR(table.against_best(2)->ratio.value, 0.5, 1e-12);
    EXPECT_EQ(table.against_best(2)->differs(), true);
    EXPECT_NEAR(table.noise_floor->value, 1200.0 / 1224, 1e-12);
    EXPECT_EQ(noise_floor_warning(table), "");
    many.methods[0] = slow;
    many.control = fast;
    EXPECT_NE(noise_floor_warning(bench_table(many)).find("against itself"), std::string::npos);
    many.methods = {slow, fast};
    EXPECT_EQ(bench_table(many).best, 1u);
    EXPECT_EQ(bench_table(many).against_best(0)->differs(), true);
}

TEST(BenchTable, NoRoundsGiveNoNumbers) {
    BenchSamples none = samples();
    for (BenchMethodSamples& method : none.methods) method.units = {{{}, {}, {}}};
    const BenchTable table = bench_table(none);
    EXPECT_EQ(table.rows[1].all.prompts, 0u);
    EXPECT_EQ(table.rows[1].all.tokens_per_second, 0);
    EXPECT_FALSE(table.rows[1].all.speedup);
    EXPECT_FALSE(table.rows[2].cost.nu);
}

}  // namespace
}  // namespace draftscope
