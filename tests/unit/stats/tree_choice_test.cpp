#include "stats/tree_choice.h"

#include <gtest/gtest.h>

#include "stats/setting_choice.h"

namespace draftscope {
namespace {

/// A root with two children; the better one has two children. `path` lists the accepted nodes.
PilotRound round_with(std::initializer_list<int> path) {
    PilotRound round{{-1, 0, 0.0f, true},
                     {0, 1, -0.1f, false},
                     {0, 1, -2.0f, false},
                     {1, 2, -0.2f, false},
                     {1, 2, -1.5f, false}};
    for (const int node : path) round[node].accepted = true;
    // The root is not a draft token and must not count.
    return round;
}

RoundCosts make_costs(double level, double last) {
    RoundCosts costs;
    costs.verify = {{1, 100.0}, {3, 120.0}, {5, last}};
    costs.fixed = 10;
    costs.level = level;
    return costs;
}

TEST(TreeChoice, TimesAreInterpolatedLinearly) {
    const RoundCosts costs = make_costs(0, 200);
    EXPECT_DOUBLE_EQ(verify_ns(costs, 1), 100);
    EXPECT_DOUBLE_EQ(verify_ns(costs, 2), 110);
    EXPECT_DOUBLE_EQ(verify_ns(costs, 4), 160);
    EXPECT_DOUBLE_EQ(verify_ns(costs, 6), 240);
    EXPECT_DOUBLE_EQ(verify_ns({}, 3), 0);
}

TEST(TreeChoice, ASmallerTreeKeepsTheBestScoresAndAChainTheBestChild) {
    const std::vector<PilotRound> rounds{round_with({1, 3}), round_with({1, 4}), round_with({2}),
                                         round_with({})};
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {1, 2, 5}), 1 + 5.0 / 4);  // the pilot's own tree
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {1, 2, 4}), 1 + 4.0 / 4);  // without node 2
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {0, 2, 3}), 1 + 3.0 / 4);  // nodes 1 and 2
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {0, 1, 2}), 1 + 2.0 / 4);  // node 1
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {1, 1, 3}), 1 + 3.0 / 4);  // nodes 1 and 3
    EXPECT_DOUBLE_EQ(pilot_tau(rounds, {4, 1, 6}), 1 + 3.0 / 4);  // deeper than the pilot tree
    EXPECT_DOUBLE_EQ(pilot_tau({}, {1, 1, 3}), 1);
}

TEST(TreeChoice, CostsDecideTheShape) {
    const std::vector<PilotRound> rounds{round_with({1, 3}), round_with({1, 4}), round_with({2}),
                                         round_with({1, 3})};
    const auto chosen = [&](const RoundCosts& costs) {
        const std::vector<SweepSetting> forecasts = forecast_trees(rounds, {1, 2, 5}, costs);
        return forecasts[*choose_setting(forecasts, 1)->chosen].shape;
    };
    EXPECT_EQ(chosen(make_costs(1, 121)), (TreeShape{1, 2, 5}));
    EXPECT_EQ(chosen(make_costs(1, 900)), (TreeShape{1, 1, 3}));
    EXPECT_EQ(chosen(make_costs(500, 900)).depth, 0);
}

TEST(TreeChoice, ForecastsATreeWithKnownTau) {
    const SweepSetting one = forecast_tree({1, 1, 3}, 1.8, make_costs(5, 130));
    EXPECT_DOUBLE_EQ(one.round_ms, 1e-6 * (10 + 5 + 120));
    EXPECT_DOUBLE_EQ(one.speedup(), 1.8 * 100 / 135);
    EXPECT_LT(forecast_tree({1, 1, 3}, 1.2, make_costs(5, 130)).speedup(), 1);
}

TEST(TreeChoice, SpeedupIsRelativeToNoDrafting) {
    const std::vector<PilotRound> rounds{round_with({}), round_with({})};
    const auto forecasts = forecast_trees(rounds, {1, 2, 5}, make_costs(5, 130));
    ASSERT_FALSE(forecasts.empty());
    for (const SweepSetting& one : forecasts) {
        EXPECT_DOUBLE_EQ(*one.total().tau(), 1);
        EXPECT_LT(one.speedup(), 1) << "nothing was accepted: drafting only costs";
    }
    EXPECT_EQ(forecasts[*choose_setting(forecasts, 1)->chosen].shape, (TreeShape{0, 1, 2}));
    EXPECT_TRUE(forecast_trees({}, {1, 2, 5}, make_costs(5, 130)).empty());
    EXPECT_TRUE(forecast_trees(rounds, {1, 2, 5}, {}).empty());
}

TEST(TreeChoice, ChainPilotsGiveChainsOnly) {
    const std::vector<PilotRound> rounds{round_with({1, 3})};
    for (const SweepSetting& one : forecast_trees(rounds, {3, 1, 5}, make_costs(1, 130)))
        EXPECT_EQ(one.shape.topk, 1);
}

}  // namespace
}  // namespace draftscope
