#include "stats/setting_choice.h"

#include <gtest/gtest.h>

#include <random>

namespace draftscope {
namespace {

SweepSetting setting(const std::string& head, TreeShape shape, double round_ms) {
    SweepSetting one;
    one.drafter = "eagle3";
    one.head = head;
    one.tree = "any";
    one.shape = shape;
    one.round_ms = round_ms;
    one.plain_ms = 5;
    return one;
}

/// Returns a setting whose tau alternates around a mean, with `offset` deciding which conversations are good.
SweepSetting noisy(const std::string& head, TreeShape shape, double tau, double round_ms, int offset = 0) {
    SweepSetting one = setting(head, shape, round_ms);
    for (int c = 0; c < 12; ++c) one.units.push_back({10, 10 * tau + ((c + offset) % 2 == 0 ? 0.3 : -0.3)});
    return one;
}

TEST(SettingChoice, PrefersTheSimplestOfThoseThatTie) {
    const TreeShape chain{1, 1, 3}, tree{2, 4, 8};
    // The tree is 0.5 % faster, but not in every conversation.
    std::vector<SweepSetting> all = {noisy("full", tree, 2.01, 6), noisy("full", chain, 2, 6, 1),
                                     noisy("microspec", chain, 2, 6)};
    auto choice = choose_setting(all, 1);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->fastest, 0u);
    EXPECT_EQ(choice->chosen, 1u);
    EXPECT_EQ(choice->runner_up, 2u);
    EXPECT_EQ(choice->same_choice, 12u);
    // 2 % lie outside of the margin.
    all[0] = noisy("full", tree, 2.04, 6);
    EXPECT_EQ(choose_setting(all, 1)->chosen, 0u);
    // Within the margin, but slower in every conversation.
    all = {noisy("full", tree, 2.01, 6), noisy("full", chain, 2, 6)};
    EXPECT_EQ(choose_setting(all, 1)->chosen, 0u);
    EXPECT_FALSE(choose_setting(all, 2));
}

TEST(SettingChoice, FewConversationsTakeTheFastest) {
    std::vector<SweepSetting> all = {noisy("full", {2, 4, 8}, 2.001, 6), noisy("full", {1, 1, 3}, 2, 6, 1)};
    for (SweepSetting& one : all) one.units.resize(4);
    const auto choice = choose_setting(all, 1);
    EXPECT_EQ(choice->chosen, 0u);
    EXPECT_NEAR(choice->speedup.value, 2 * 5.0 / 6, 0.05);
    EXPECT_FALSE(choice->speedup.interval);
}

/// Settings that differ by chance alone: the best of them looks faster than it is.
TEST(SettingChoice, ExpectsNothingOfLuck) {
    std::mt19937 random(7);
    std::normal_distribution<double> noise(0, 3);
    double winners = 0, expected = 0;
    constexpr int repeats = 20;
    for (int r = 0; r < repeats; ++r) {
        std::vector<SweepSetting> all;
        for (int s = 0; s < 40; ++s) {
            all.push_back(setting("full", {s, 1, s + 2}, 5));
            for (int c = 0; c < 8; ++c) all.back().units.push_back({10, 20 + noise(random)});
        }
        const auto choice = choose_setting(all, 1, {.resamples = 100});
        winners += all[*choice->fastest].speedup() / repeats;
        expected += choice->speedup.value / repeats;
        EXPECT_TRUE(choice->speedup.interval);
    }
    EXPECT_GT(winners, 2.15);  // truly 2
    EXPECT_NEAR(expected, 2, 0.08);
}

TEST(SettingChoice, AnErrorOfASharedCurveCancels) {
    // Both verify by one curve, whose error is 20 %; the second round is 5 % longer.
    std::vector<SweepSetting> all = {setting("full", {1, 1, 3}, 6), setting("full", {2, 1, 4}, 6.3)};
    for (SweepSetting& one : all) {
        one.units.assign(12, {10, 20});
        one.cost_error = 0.2;
    }
    rank_settings(all);
    EXPECT_EQ(all[1].figures.ties_with_best, true);
    for (SweepSetting& one : all) one.curves = {{0, one.round_ms, 0.2, 0, {}}};
    rank_settings(all);
    EXPECT_EQ(all[1].figures.ties_with_best, false);
    all[1].curves[0].curve = 1;
    rank_settings(all);
    EXPECT_EQ(all[1].figures.ties_with_best, true);
}

}  // namespace
}  // namespace draftscope
