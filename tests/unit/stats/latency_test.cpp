#include <gtest/gtest.h>

#include "stats/run_statistics.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::round_of;

RoundRecord round_at(int context_length, int committed) {
    RoundRecord record = round_of(committed);
    record.round.context_length = context_length;
    return record;
}

TEST(Latency, TokensOfARoundShareItsTime) {
    CaptureBuilder builder;
    builder.step(0, 50'000'000, {}, round_at(10, 1), Excluded::warmup);
    builder.step(50'000'000, 62'000'000, {}, round_at(11, 3));
    builder.step(62'000'000, 82'000'000, {}, round_at(14, 1), Excluded::no, 10'000'000);
    builder.end_prompt(6, 7'000'000);
    const Latency found = latency(builder.snapshot(), 1);
    EXPECT_EQ(found.first_token_ms.n, 1);
    EXPECT_DOUBLE_EQ(found.first_token_ms.median, 7);
    EXPECT_EQ(found.inter_token_ms.n, 4);
    EXPECT_DOUBLE_EQ(found.inter_token_ms.mean, (12.0 + 10.0) / 4);
    EXPECT_DOUBLE_EQ(found.inter_token_ms.median, 4);
    EXPECT_DOUBLE_EQ(found.output_gap_ms.max, 12);
    EXPECT_EQ(found.output_gap_ms.n, 2);
}

TEST(Latency, SpeedByContextAndByPosition) {
    CaptureBuilder builder;
    PromptRow prompt;
    prompt.prompt_tokens = 60;
    builder.prompt(prompt);
    builder.step(0, 10'000'000, {}, round_at(61, 2));
    builder.step(10'000'000, 20'000'000, {}, round_at(63, 4));
    builder.step(20'000'000, 40'000'000, {}, round_at(67, 1));
    builder.step(40'000'000, 50'000'000, {}, round_at(200, 3), Excluded::warmup);
    const Snapshot snapshot = builder.snapshot();
    const std::vector<PositionBin> context = speed_by_position(snapshot, 1, true);
    ASSERT_EQ(context.size(), 3u);
    EXPECT_EQ(to_text(context[0]), "0 .. 63");
    EXPECT_DOUBLE_EQ(context[0].tau, 3);
    EXPECT_DOUBLE_EQ(context[0].tokens_per_second, 300);
    EXPECT_EQ(to_text(context[1]), "64 .. 127");
    EXPECT_DOUBLE_EQ(context[1].tokens_per_second, 50);
    EXPECT_EQ(to_text(context[2]), "128 .. 255");
    EXPECT_DOUBLE_EQ(context[2].tau, 3);
    EXPECT_EQ(context[2].tokens_per_second, 0);  // no step counts
    const std::vector<PositionBin> position = speed_by_position(snapshot, 1, false);
    ASSERT_EQ(position.size(), 2u);
    EXPECT_EQ(position[0].rounds, 3);
    EXPECT_EQ(position[1].rounds, 1);
}

TEST(Latency, NoRoundsGiveNothing) {
    const Snapshot snapshot = CaptureBuilder().snapshot();
    EXPECT_EQ(latency(snapshot, 1).inter_token_ms.n, 0);
    EXPECT_TRUE(speed_by_position(snapshot, 1, true).empty());
}

}  // namespace
}  // namespace draftscope
