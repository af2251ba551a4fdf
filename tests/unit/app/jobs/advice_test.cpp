#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/jobs/sweep/sweep_job.h"

namespace draftscope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

SweepSetting setting(const std::string& head, const std::string& tree, double tau, double round_ms,
                     int batch) {
    SweepSetting one;
    one.drafter = "eagle3";
    one.head = head;
    one.tree = tree;
    one.batch = batch;
    one.round_ms = round_ms;
    one.plain_ms = 5;
    one.units.assign(12, {10, 10 * tau});
    return one;
}

SweepReport report(std::vector<SweepSetting> settings, const std::string& model = "") {
    SweepReport out;
    out.run.model = model;
    out.conversations = 12;
    out.settings = std::move(settings);
    rank_settings(out.settings);
    return out;
}

TEST(Advice, SaysWhatAndWhy) {
    const std::vector<SweepSetting> all = {setting("full", "chain=2", 2, 8, 1),
                                           setting("microspec", "chain=2", 1.9, 6, 1),
                                           setting("full", "chain=2", 2, 8, 8)};
    const Advice advice = advise(report(all, "my.gguf"));
    EXPECT_THAT(advice.summary, HasSubstr("Use eagle3 x microspec @ chain=2: predicted 1.58x"));
    EXPECT_THAT(advice.summary,
                HasSubstr("keeps 95.0 % of the full head's tau and makes the round 25.0 % shorter"));
    EXPECT_THAT(advice.summary, HasSubstr("Runner-up: eagle3 x full @ chain=2"));
    EXPECT_EQ(advice.run_line,
              "draftscope run --model my.gguf --drafter eagle3 --head microspec --tree chain=2");
    ASSERT_EQ(advice.serving.size(), 2u);
    EXPECT_THAT(advice.serving[0], HasSubstr(R"("num_speculative_tokens": 2)"));
    EXPECT_THAT(advice.serving[1], HasSubstr("--speculative-num-steps 2 --speculative-eagle-topk 1 "
                                             "--speculative-num-draft-tokens 3"));
    EXPECT_THAT(advice.changes, Contains(HasSubstr("at batch 8: eagle3 x full @ chain=2")));
}

TEST(Advice, PlainDecodingWhereNothingGains) {
    const Advice advice = advise(report({setting("full", "chain=2", 1.2, 8, 1)}));
    EXPECT_THAT(advice.summary, HasSubstr("Decode without a drafter"));
    EXPECT_EQ(advice.run_line, "draftscope run --drafter none");
    SweepReport bound = report({setting("full", "chain=2", 1.2, 8, 1)});
    bound.profile.precision = "bf16";
    bound.profile.threads = 3;
    bound.temperature = 0.7;
    EXPECT_EQ(advise(bound).run_line,
              "draftscope run --precision bf16 --threads 3 --temperature 0.7 --drafter none");
    EXPECT_TRUE(advice.serving.empty());
}

TEST(Advice, ServingStacksTakeWhatTheyKnow) {
    EXPECT_EQ(serving_options("eagle3", {3, 4, 12}).size(), 1u);  // vLLM drafts chains only
    EXPECT_EQ(serving_options("ngram", {2, 1, 4}).size(), 1u);
    EXPECT_TRUE(serving_options("medusa", {2, 4, 12}).empty());
    const auto standalone = serving_options("draft-model:a.gguf,precision=int4", {3, 1, 5});
    ASSERT_EQ(standalone.size(), 1u);
    EXPECT_EQ(standalone[0].find("SGLang: --speculative-algorithm STANDALONE"), 0u);
}

}  // namespace
}  // namespace draftscope
