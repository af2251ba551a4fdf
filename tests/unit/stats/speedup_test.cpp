#include "stats/speedup.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "capture/run_setting.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

/// Runs with one step of one round for each token count.
class SpeedUps : public ::testing::Test {
  protected:
    RowId add_run(const std::string& drafter, int max_new = 8, std::uint64_t seed = 0) {
        RunRow run;
        run.drafter = drafter;
        run.temperature = 1;
        run.seed = seed;
        run.config_json = fmt::format("{{\"max_new\": {}}}", max_new);
        return capture_.run(run);
    }
    /// Adds a prompt to the last run: a warm-up step that doesn't count, then a step of `ns` for `committed`
    /// tokens.
    void add_prompt(const std::string& id, int turn, int committed, TimeNs ns) {
        PromptRow prompt;
        prompt.external_id = id;
        prompt.turn = turn;
        prompt.text = fmt::format("{} {}", id, turn);
        capture_.prompt(prompt);
        capture_.step(0, 77777, {}, testing::round_of(committed), Excluded::warmup);
        capture_.step(0, ns, {}, testing::round_of(committed));
    }
    testing::CaptureBuilder capture_;
};

TEST_F(SpeedUps, UsesCommonPrompts) {
    const RowId plain = add_run("none");
    add_prompt("a", 0, 1, 100);
    add_prompt("a", 1, 1, 300);
    const RowId run = add_run("eagle3");
    add_prompt("a", 0, 3, 100);
    add_prompt("a", 1, 3, 100);
    add_prompt("b", 0, 9, 10);  // fast, but without a counterpart
    const auto speed = compute_speedup(capture_.snapshot(), run);
    ASSERT_TRUE(speed);
    EXPECT_EQ(speed->plain_runs, std::vector<RowId>{plain});
    EXPECT_EQ(speed->prompts, 2u);
    EXPECT_EQ(speed->conversations, 1u);
    EXPECT_EQ(speed->conversations_of_run, 2u);
    EXPECT_DOUBLE_EQ(speed->tokens_per_second, 1e9 * 6 / 200);
    EXPECT_DOUBLE_EQ(speed->plain_tokens_per_second, 1e9 * 2 / 400);
    EXPECT_DOUBLE_EQ(speed->ratio.value, 6.0);
    EXPECT_FALSE(speed->ratio.interval) << "one conversation";
    EXPECT_FALSE(compute_speedup(capture_.snapshot(), plain));
}

TEST_F(SpeedUps, PoolsSeedsAndIgnoresOtherSettings) {
    add_run("none", 64);
    add_prompt("a", 0, 1, 1);
    const RowId run = add_run("eagle3");
    add_prompt("a", 0, 2, 100);
    EXPECT_FALSE(compute_speedup(capture_.snapshot(), run)) << "another max-new";
    add_run("none", 8, 1);
    add_prompt("a", 0, 1, 100);
    add_run("none", 8, 2);
    add_prompt("a", 0, 1, 300);
    const auto speed = compute_speedup(capture_.snapshot(), run);
    ASSERT_TRUE(speed);
    EXPECT_EQ(speed->plain_runs.size(), 2u);
    EXPECT_DOUBLE_EQ(speed->ratio.value, (2.0 / 100) / (2.0 / 400));
}

TEST_F(SpeedUps, ManyConversationsGiveAnInterval) {
    add_run("none");
    for (int i = 0; i < 12; ++i) add_prompt(fmt::format("q{}", i), 0, 1, 100 + i % 3);
    const RowId run = add_run("eagle3");
    for (int i = 0; i < 12; ++i) add_prompt(fmt::format("q{}", i), 0, 2, 100 + i % 5);
    const auto speed = compute_speedup(capture_.snapshot(), run);
    ASSERT_TRUE(speed && speed->ratio.interval);
    EXPECT_TRUE(speed->ratio.interval->contains(speed->ratio.value));
    EXPECT_GT(speed->ratio.interval->low, 1.9);
    EXPECT_LT(speed->ratio.interval->high, 2.1);
}

TEST_F(SpeedUps, LegacyBaselineIsNoReference) {
    const RowId run = add_run("eagle3");
    add_prompt("a", 0, 2, 100);
    EXPECT_FALSE(legacy_baseline(capture_.snapshot(), run));
    capture_.add(CounterRow{run, 0, std::string(baseline_counter), 52.5});
    EXPECT_EQ(legacy_baseline(capture_.snapshot(), run), 52.5);
    EXPECT_FALSE(compute_speedup(capture_.snapshot(), run));
}

}  // namespace
}  // namespace draftscope
