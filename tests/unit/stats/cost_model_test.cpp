#include "stats/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace draftscope {
namespace {

TEST(CostModel, AgreesWithSlimSpecsTable) {
    // SlimSpec, table 3: rho_tau, nu, measured speed-up; kappa 0.25. The paper's model is accurate to 3 %.
    struct Row {
        double rho, nu, measured;
    };
    for (const Row& row : {Row{0.87, 0.33, 1.01}, Row{0.99, 0.21, 1.19}, Row{1.01, 0.46, 1.16},
                           Row{0.98, 0.14, 1.18}, Row{0.78, 0.20, 0.93}, Row{1.0, 1.0, 1.0}})
        EXPECT_NEAR(predicted_speedup(row.rho, row.nu, 0.25), row.measured, 0.03 * row.measured);
    // Computed by hand: 0.87 * 1.25 / 1.0825.
    EXPECT_NEAR(predicted_speedup(0.87, 0.33, 0.25), 1.00462, 1e-5);
}

TEST(CostModel, BreakEvenIsWherePredictedIsOne) {
    for (const double kappa : {0.1, 0.25, 1.0})
        for (const double nu : {0.0, 0.2, 1.0}) {
            const double rho = iso_rho_tau(1, nu, kappa);
            EXPECT_NEAR(predicted_speedup(rho, nu, kappa), 1.0, 1e-12);
            EXPECT_NEAR(*break_even_nu(rho, kappa), nu, 1e-12);
        }
    EXPECT_FALSE(break_even_nu(0.9, 0));
    EXPECT_LT(*break_even_nu(0.5, 0.25), 0);  // no cost is low enough
}

/// Held values of DynaSpec's eq. 1 and 2, computed by hand.
TEST(CostModel, ExpectsTokensFromIndependentAcceptance) {
    EXPECT_DOUBLE_EQ(expected_tokens(0.5, 3), 1.875);  // (1 - 1/16) / (1 - 1/2)
    EXPECT_NEAR(expected_tokens(0.8, 6), 3.951424, 1e-12);
    EXPECT_DOUBLE_EQ(expected_tokens(1, 6), 7);
    EXPECT_DOUBLE_EQ(expected_tokens(0, 6), 1);
    EXPECT_DOUBLE_EQ(expected_tokens(0.9, 0), 1);
    EXPECT_NEAR(speculation_speedup(0.8, 6, 0.1, 1.2), 3.951424 / 1.8, 1e-12);
    EXPECT_NEAR(speculation_speedup(0.5, 3, 0.25, 1), 1.875 / 1.75, 1e-12);
    EXPECT_DOUBLE_EQ(speculation_speedup(0.7, 0, 0.5, 1), 1);  // no drafts: autoregressive decoding
}

/// Rounds of 10 units of time outside the head. The full head takes 4, the other head 1.
PairedSample unit(double rounds, double committed, double full_committed) {
    PairedSample unit;
    unit.head = {rounds, committed, rounds, committed, rounds * 1, rounds * 11};
    unit.full = {rounds, full_committed, rounds, full_committed, rounds * 4, rounds * 14};
    unit.base = unit.full_run = unit.full;
    unit.head_run = unit.head;
    return unit;
}

TEST(CostModel, SumsThenDivides) {
    const PairedSample units[] = {unit(10, 20, 25), unit(30, 90, 105)};
    const AcceptanceCost cost = acceptance_cost(units);
    EXPECT_DOUBLE_EQ(cost.tau->value, 110.0 / 40);
    EXPECT_DOUBLE_EQ(cost.rho_tau->value, 110.0 / 130);
    EXPECT_DOUBLE_EQ(cost.nu->value, 0.25);
    EXPECT_DOUBLE_EQ(cost.kappa->value, 0.4);
    EXPECT_DOUBLE_EQ(cost.predicted->value, predicted_speedup(110.0 / 130, 0.25, 0.4));
    // T_non-head is the same for both, as the model assumes, so nothing is unexplained.
    EXPECT_DOUBLE_EQ(cost.measured->value, (110.0 / 440) / (130.0 / 560));
    EXPECT_NEAR(cost.unexplained->value, 0, 1e-12);
    EXPECT_DOUBLE_EQ(*cost.break_even_rho_tau, 1.1 / 1.4);
    EXPECT_NEAR(*cost.break_even_nu, (110.0 / 130 * 1.4 - 1) / 0.4, 1e-12);
    EXPECT_FALSE(cost.rho_tau->interval);  // two units
}

TEST(CostModel, UnknownQuantitiesAreAbsent) {
    EXPECT_FALSE(acceptance_cost({}).tau);
    // A shadow head has no steps of its own, so the driving run's T_non-head is used.
    PairedSample shadow = unit(10, 20, 25);
    shadow.head.step_ns = shadow.full.step_ns = 0;
    shadow.base = shadow.full_run = shadow.head_run = {};
    AcceptanceCost cost = acceptance_cost({&shadow, 1});
    EXPECT_TRUE(cost.nu);
    EXPECT_FALSE(cost.kappa);
    EXPECT_FALSE(cost.predicted);
    EXPECT_FALSE(cost.measured);
    shadow.base = {0, 0, 10, 0, 20, 120};
    cost = acceptance_cost({&shadow, 1});
    EXPECT_DOUBLE_EQ(cost.kappa->value, 0.4);
    EXPECT_TRUE(cost.predicted);
    // Without the full head, only tau is known.
    shadow.full = {};
    cost = acceptance_cost({&shadow, 1});
    EXPECT_DOUBLE_EQ(cost.tau->value, 2.0);
    EXPECT_FALSE(cost.rho_tau);
    EXPECT_FALSE(cost.nu);
}

TEST(CostModel, DifferentRoundsAreComparedThroughTheDrivingHead) {
    // The head ran in 10 rounds in which the driving head committed 20. The full head ran in 4 other rounds
    // with easier text, in which the driving head committed 12.
    PairedSample unit;
    unit.head = {10, 18};
    unit.drive_at_head = {10, 20};
    unit.full = {4, 15};
    unit.drive_at_full = {4, 12};
    const AcceptanceCost cost = acceptance_cost({&unit, 1});
    EXPECT_DOUBLE_EQ(cost.rho_tau->value, (18.0 / 20) * (12.0 / 15));
    // In the same rounds the driving head cancels out.
    unit.drive_at_full = {4, 8};
    EXPECT_DOUBLE_EQ(acceptance_cost({&unit, 1}).rho_tau->value, 1.8 / 3.75);
}

TEST(CostModel, SpeedIsMeasuredOnTheTextsThatBothDrove) {
    std::vector<PairedSample> units = {unit(10, 20, 25), unit(10, 40, 25)};
    units[1].full_run = units[1].head_run = {};  // the full head did not decode this prompt
    const AcceptanceCost cost = acceptance_cost(units);
    EXPECT_DOUBLE_EQ(cost.measured->value, (20.0 / 110) / (25.0 / 140));
}

TEST(CostModel, IntervalsHaveNominalCoverage) {
    Rng rng(11);
    int covered = 0, wide = 0;
    constexpr int runs = 120;
    for (int run = 0; run < runs; ++run) {
        std::vector<PairedSample> units;
        for (int i = 0; i < 40; ++i) {
            const double level = 2 + rng.uniform();  // prompts differ, but both heads equally
            units.push_back(
                unit(20, 20 * (0.9 * level + 0.2 * rng.normal()), 20 * (level + 0.2 * rng.normal())));
        }
        BootstrapOptions options{.resamples = 300, .seed = static_cast<std::uint64_t>(run)};
        const auto cost = acceptance_cost(units, options);
        const Interval interval = cost.rho_tau->interval.value();
        EXPECT_LT(interval.low, cost.rho_tau->value);
        EXPECT_GT(interval.high, cost.rho_tau->value);
        covered += interval.low <= 0.9 && 0.9 <= interval.high ? 1 : 0;
        wide += interval.high - interval.low > 0.1 ? 1 : 0;
    }
    EXPECT_GT(covered, runs * 85 / 100);
    EXPECT_EQ(wide, 0);  // pairing removes the difference between prompts
}

TEST(CostModel, EqualHeadsStillHaveAnInterval) {
    // Eight equal rounds in each of six conversations: the effect of one more round is unknown.
    std::vector<PairedSample> units(6, unit(8, 20, 20));
    const Interval interval = acceptance_cost(units).rho_tau->interval.value();
    EXPECT_LT(interval.low, 0.96);
    EXPECT_GT(interval.high, 1.04);
    units.resize(5);
    EXPECT_FALSE(acceptance_cost(units).rho_tau->interval);
}

TEST(CostModel, IntervalsAreReproducible) {
    std::vector<PairedSample> units;
    for (int i = 0; i < 8; ++i) units.push_back(unit(10 + i, 22 + i, 26));
    const auto a = acceptance_cost(units), b = acceptance_cost(units);
    EXPECT_EQ(a.predicted->interval->low, b.predicted->interval->low);
    EXPECT_EQ(a.predicted->interval->high, b.predicted->interval->high);
}

}  // namespace
}  // namespace draftscope
