#include "capture/conversations.h"

#include <gtest/gtest.h>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using Numbers = std::vector<std::size_t>;

TEST(Conversations, LaterTurnsOfAnIdContinueIt) {
    const TurnName turns[] = {{"s", "a", 0}, {"s", "a", 1}, {"s", "b", 0}, {"s", "a", 2}};
    EXPECT_EQ(group_conversations(turns), (Numbers{0, 0, 1, 0}));
}

TEST(Conversations, ARepeatedTurnStartsANewOne) {
    const TurnName turns[] = {{"s", "a", 0}, {"s", "a", 1}, {"s", "a", 0}, {"s", "a", 1}, {"t", "a", 1}};
    EXPECT_EQ(group_conversations(turns), (Numbers{0, 0, 1, 1, 2}));
}

TEST(Conversations, TurnsWithoutAnIdAreSeparate) {
    const TurnName turns[] = {{"s", "", 0}, {"s", "", 1}, {"s", "", 0}};
    EXPECT_EQ(group_conversations(turns), (Numbers{0, 1, 2}));
}

TEST(Conversations, FollowThePromptFileOrder) {
    // In a batch, the second turn of one conversation can start after the first turn of the next.
    testing::CaptureBuilder builder;
    const auto begin = [&](int ordinal, const char* name, int turn) {
        PromptRow prompt;
        prompt.ordinal = ordinal;
        prompt.external_id = name;
        prompt.turn = turn;
        builder.prompt(prompt);
    };
    begin(0, "a", 0);
    begin(2, "a", 0);
    begin(1, "a", 1);
    begin(3, "a", 1);
    const Snapshot snapshot = builder.snapshot();
    const Conversations conversations(snapshot, 1);
    EXPECT_EQ(conversations.count(), 2u);
    EXPECT_EQ(conversations.find(1), conversations.find(3));
    EXPECT_EQ(conversations.find(2), conversations.find(4));
    EXPECT_NE(conversations.find(1), conversations.find(2));
    EXPECT_FALSE(conversations.find(9));
    EXPECT_EQ(Conversations(snapshot, 7).count(), 0u);
}

}  // namespace
}  // namespace draftscope
