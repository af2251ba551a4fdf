#include "app/gui/models/latency.h"

#include <gtest/gtest.h>

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

TEST(LatencyModel, HasARowOfEachKindAndTheBinsOfBothAxes) {
    CaptureBuilder builder;
    PromptRow prompt;
    prompt.prompt_tokens = 1000;
    prompt.prefill_ns = 7'000'000;
    builder.prompt(prompt);
    builder.step(0, 12'000'000, {}, round_at(1001, 3));
    builder.step(12'000'000, 22'000'000, {}, round_at(1070, 1));
    const LatencyModel model = build_latency(builder.snapshot(), 1);
    EXPECT_EQ(model.empty_text, "");
    ASSERT_EQ(model.rows.size(), 3u);
    EXPECT_EQ(model.rows[0].name, "first token");
    EXPECT_DOUBLE_EQ(model.rows[0].ms.median, 7);
    EXPECT_EQ(model.rows[1].name, "inter-token");
    EXPECT_DOUBLE_EQ(model.rows[1].ms.median, 4);
    EXPECT_FALSE(model.rows[1].ms.p99.has_value());
    EXPECT_EQ(model.rows[2].name, "output");
    EXPECT_DOUBLE_EQ(model.rows[2].ms.max, 12);
    ASSERT_EQ(model.by_context.size(), 2u);
    EXPECT_EQ(axis_label(model.by_context[0]), "512");
    EXPECT_EQ(axis_label(model.by_context[1]), "1k");
    EXPECT_EQ(describe_bin(model.by_context[0]),
              "512 .. 1023 tokens: 1 round, 250.0 tokens per second, tau 3.00");
    ASSERT_EQ(model.by_position.size(), 2u);
    EXPECT_EQ(axis_label(model.by_position[0]), "0");
    EXPECT_EQ(axis_label(model.by_position[1]), "64");
}

TEST(LatencyModel, SaysWhatIsMissing) {
    CaptureBuilder builder;
    builder.step(0, 10, {}, round_at(10, 1), Excluded::warmup);
    const LatencyModel warming = build_latency(builder.snapshot(), 1);
    EXPECT_EQ(warming.empty_text, "");
    EXPECT_TRUE(warming.rows.empty());
    EXPECT_EQ(describe_bin(warming.by_context[0]), "0 .. 63 tokens: 1 round, no counted step, tau 1.00");
    EXPECT_NE(build_latency(builder.snapshot(), 2).empty_text.find("No run"), std::string::npos);
}

}  // namespace
}  // namespace draftscope
