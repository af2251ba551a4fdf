#include "stats/sweep_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace draftscope {
namespace {

using ::testing::ElementsAre;

/// A setting with the same tau in every conversation.
SweepSetting setting(const std::string& name, double tau, double round_ms, int conversations = 12) {
    SweepSetting one;
    one.drafter = name;
    one.tree = "chain=1";
    one.round_ms = round_ms;
    one.plain_ms = 5;
    one.units.assign(conversations, {10, 10 * tau});
    return one;
}

std::vector<SweepSetting> ranked(std::vector<SweepSetting> settings) {
    rank_settings(settings);
    return settings;
}

TEST(SweepTable, SpeedIsTauOverTheRound) {
    std::vector<SweepSetting> all = {setting("d", 2, 10), setting("d", 1.8, 6)};
    all[0].head = "full";
    all[1].head = "small";
    all = ranked(all);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].head, "small");
    EXPECT_DOUBLE_EQ(all[0].figures.tau.value, 1.8);
    EXPECT_DOUBLE_EQ(all[0].figures.tokens_per_second.value, 300);
    EXPECT_DOUBLE_EQ(all[0].figures.speedup.value, 1.5);
    EXPECT_EQ(all[0].full, 1u);
    EXPECT_DOUBLE_EQ(all[0].figures.against_full->value, 1.5);
    EXPECT_DOUBLE_EQ(all[1].figures.against_full->value, 1);
    // Both are on the front: one accepts more, the other takes less time.
    EXPECT_TRUE(all[0].figures.on_front);
    EXPECT_TRUE(all[1].figures.on_front);
    EXPECT_EQ(all[0].figures.ties_with_best, true);
    EXPECT_EQ(all[1].figures.ties_with_best, false);
}

TEST(SweepTable, DominatedSettingsAreOffTheFront) {
    std::map<std::string, bool> front;
    for (const SweepSetting& one : ranked(
             {setting("good", 2, 6), setting("worse", 1.9, 6), setting("dear", 2, 7), setting("same", 2, 6)}))
        front[one.drafter] = one.figures.on_front;
    EXPECT_EQ(front, (std::map<std::string, bool>{
                         {"good", true}, {"worse", false}, {"dear", false}, {"same", true}}));
}

TEST(SweepTable, IntervalsHoldTheProfilesError) {
    std::vector<SweepSetting> all = ranked({setting("sure", 2, 6), setting("unsure", 1.95, 6)});
    // All conversations accept alike, so that only the profile's error makes an interval.
    EXPECT_NEAR(all[0].figures.tokens_per_second.interval->low, all[0].figures.tokens_per_second.value, 1e-6);
    EXPECT_EQ(all[1].figures.ties_with_best, false);
    for (SweepSetting& one : all) {
        one.cost_error = 0.05;
        one.speedup_error = 0.03;
    }
    all = ranked(all);
    EXPECT_NEAR(all[0].figures.speedup.interval->high / all[0].figures.speedup.value,
                std::exp(0.03 * student_t95(11)), 1e-6);
    const Interval speed = *all[0].figures.tokens_per_second.interval;
    EXPECT_NEAR(speed.high / all[0].figures.tokens_per_second.value, std::exp(0.05 * student_t95(11)), 1e-6);
    EXPECT_NEAR(all[0].figures.tau.interval->high, 2, 1e-6);
    EXPECT_EQ(all[1].figures.ties_with_best, true);
}

TEST(SweepTable, SettingsAreComparedOnTheSameConversations) {
    // Conversations differ much, but the second setting accepts 10 % less in each of them.
    std::vector<SweepSetting> all = {setting("a", 2, 6), setting("b", 2, 6)};
    for (std::size_t c = 0; c < 12; ++c) {
        all[0].units[c].committed = 10.0 * static_cast<double>(1 + c % 4);
        all[1].units[c].committed = 9.0 * static_cast<double>(1 + c % 4);
    }
    rank_settings(all);
    EXPECT_TRUE(all[0].figures.tokens_per_second.interval->contains(all[1].figures.tokens_per_second.value));
    EXPECT_EQ(all[1].figures.ties_with_best, false);
}

TEST(SweepTable, FewConversationsGiveNoInterval) {
    const std::vector<SweepSetting> all = ranked({setting("a", 2, 6, 5), setting("b", 1, 6, 5)});
    EXPECT_FALSE(all[0].figures.tau.interval);
    EXPECT_FALSE(all[1].figures.ties_with_best);
    EXPECT_TRUE(ranked({setting("nothing", 0, 0)}).empty());
}

TEST(SweepTable, BatchesAreRankedApart) {
    std::vector<SweepSetting> all = {setting("a", 2, 6), setting("a", 2, 12), setting("b", 1.5, 6)};
    all[1].batch = 8;
    rank_settings(all);
    EXPECT_EQ(all.back().batch, 8);
    EXPECT_TRUE(all.back().figures.on_front);
    EXPECT_DOUBLE_EQ(all.back().figures.tokens_per_second.value, 8 * 2 / 0.012);
}

TEST(SweepTable, AlternativesGiveAllCombinations) {
    EXPECT_THAT(expand_alternatives("full"), ElementsAre("full"));
    EXPECT_THAT(expand_alternatives("fr-spec:v=8|16"), ElementsAre("fr-spec:v=8", "fr-spec:v=16"));
    EXPECT_THAT(expand_alternatives("microspec:kver=1|3,wmax=8|9+rdk"),
                ElementsAre("microspec:kver=1,wmax=8+rdk", "microspec:kver=1,wmax=9+rdk",
                            "microspec:kver=3,wmax=8+rdk", "microspec:kver=3,wmax=9+rdk"));
}

}  // namespace
}  // namespace draftscope
