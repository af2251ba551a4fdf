#include "stats/sweep_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(SweepTable, SpeedIsTauOverTheRound) {
    std::vector<SweepSetting> all = {setting("slow", 2, 10), setting("fast", 1.8, 6)};
    all[0].full = all[1].full = 0;
    const std::vector<SweepRow> rows = sweep_table(all);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].setting, 1u);
    EXPECT_DOUBLE_EQ(rows[0].tau.value, 1.8);
    EXPECT_DOUBLE_EQ(rows[0].tokens_per_second.value, 300);
    EXPECT_DOUBLE_EQ(rows[0].speedup.value, 1.5);
    EXPECT_DOUBLE_EQ(rows[0].against_full->value, 1.5);
    EXPECT_DOUBLE_EQ(rows[1].against_full->value, 1);
    // Both are on the front: one accepts more, the other takes less time.
    EXPECT_TRUE(rows[0].on_front);
    EXPECT_TRUE(rows[1].on_front);
    EXPECT_EQ(rows[0].ties_with_best, true);
    EXPECT_EQ(rows[1].ties_with_best, false);
}

TEST(SweepTable, DominatedSettingsAreOffTheFront) {
    const std::vector<SweepSetting> all = {setting("good", 2, 6), setting("worse", 1.9, 6),
                                           setting("dear", 2, 7), setting("same", 2, 6)};
    std::vector<bool> front(all.size());
    for (const SweepRow& row : sweep_table(all)) front[row.setting] = row.on_front;
    EXPECT_EQ(front, (std::vector<bool>{true, false, false, true}));
}

TEST(SweepTable, IntervalsHoldTheProfilesError) {
    std::vector<SweepSetting> all = {setting("sure", 2, 6), setting("unsure", 1.95, 6)};
    // All conversations accept alike, so that only the profile's error makes an interval.
    EXPECT_NEAR(sweep_table(all)[0].tokens_per_second.interval->low,
                sweep_table(all)[0].tokens_per_second.value, 1e-6);
    EXPECT_EQ(sweep_table(all)[1].ties_with_best, false);
    for (SweepSetting& one : all) {
        one.cost_error = 0.05;
        one.speedup_error = 0.03;
    }
    const std::vector<SweepRow> rows = sweep_table(all);
    EXPECT_NEAR(rows[0].speedup.interval->high / rows[0].speedup.value, std::exp(0.03 * student_t95(11)),
                1e-6);
    const Interval speed = *rows[0].tokens_per_second.interval;
    EXPECT_NEAR(speed.high / rows[0].tokens_per_second.value, std::exp(0.05 * student_t95(11)), 1e-6);
    EXPECT_NEAR(rows[0].tau.interval->high, 2, 1e-6);
    EXPECT_EQ(rows[1].ties_with_best, true);
}

TEST(SweepTable, SettingsAreComparedOnTheSameConversations) {
    // Conversations differ much, but the second setting accepts 10 % less in each of them.
    std::vector<SweepSetting> all = {setting("a", 2, 6), setting("b", 2, 6)};
    for (std::size_t c = 0; c < 12; ++c) {
        all[0].units[c].committed = 10.0 * static_cast<double>(1 + c % 4);
        all[1].units[c].committed = 9.0 * static_cast<double>(1 + c % 4);
    }
    const std::vector<SweepRow> rows = sweep_table(all);
    EXPECT_TRUE(rows[0].tokens_per_second.interval->contains(rows[1].tokens_per_second.value));
    EXPECT_EQ(rows[1].ties_with_best, false);
}

TEST(SweepTable, FewConversationsGiveNoInterval) {
    const std::vector<SweepSetting> all = {setting("a", 2, 6, 5), setting("b", 1, 6, 5)};
    const std::vector<SweepRow> rows = sweep_table(all);
    EXPECT_FALSE(rows[0].tau.interval);
    EXPECT_FALSE(rows[1].ties_with_best);
    EXPECT_TRUE(sweep_table({setting("nothing", 0, 0)}).empty());
}

TEST(SweepTable, BatchesAreRankedApart) {
    std::vector<SweepSetting> all = {setting("a", 2, 6), setting("a", 2, 12), setting("b", 1.5, 6)};
    all[1].batch = 8;
    const std::vector<SweepRow> rows = sweep_table(all);
    EXPECT_EQ(rows.back().setting, 1u);
    EXPECT_TRUE(rows.back().on_front);
    EXPECT_DOUBLE_EQ(rows.back().tokens_per_second.value, 8 * 2 / 0.012);
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
