#include <gtest/gtest.h>

#include "app/jobs/profile/profile_job.h"
#include "app/jobs/sweep/pricing.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

ChainLengths lengths(const std::string& drafter, const std::string& head,
                     std::vector<std::vector<std::uint8_t>> accepted, int first_prefix = 10) {
    ChainLengths out;
    out.drafter = drafter;
    out.head = head;
    out.levels = 3;
    out.first_prefix.assign(accepted.size(), first_prefix);
    out.accepted = std::move(accepted);
    return out;
}

TEST(Oracle, TakesTheLongerDraftOfEveryRound) {
    const ChainLengths ngram = lengths("ngram", "", {{0, 3, 2, 1, 0, 0, 0}, {1, 0}});
    const ChainLengths eagle = lengths("eagle3", "full", {{1, 1, 1, 0, 2, 1, 0}, {1, 3}});
    // eagle alone: 2 tokens, 2, 3 in the first text; 2 in the second, since the first draft ends it.
    const OracleLine one = oracle_line({&eagle});
    EXPECT_EQ(one.rounds, (std::vector<std::vector<double>>{{0, 0, 3, 1, 0}}));
    EXPECT_EQ(one.positions, (std::vector<std::vector<double>>{{0, 0, 10 + 12 + 10, 14, 0}}));
    EXPECT_DOUBLE_EQ(one.tau(), 9.0 / 4);
    // Both: eagle's 2; ngram's 3 at position 2; eagle's 2 at position 5; ngram's 2, as long as eagle's.
    const OracleLine both = oracle_line({&ngram, &eagle});
    EXPECT_EQ(both.drafters, (std::vector<std::string>{"ngram", "eagle3"}));
    EXPECT_EQ(both.rounds, (std::vector<std::vector<double>>{{0, 0, 1, 1, 0}, {0, 0, 2, 0, 0}}));
    EXPECT_DOUBLE_EQ(both.tau(), 9.0 / 4);
}

/// The published cost model, written out from arXiv 2601.11580's simulator (predictor.py at 2fdccbd): seconds
/// of a step by verified rows of a sequence, cached tokens of a sequence, and batch.
double published_ms(const std::string& drafter, double rows, double context, double batch) {
    const double verify = batch * context * 3.92645679e-08 + batch * rows * 2.10103129e-05 + 5.88590713e-03;
    const double eagle = batch * context * 2.37768493e-09 + rows * 8.41429603e-07 + 2.13526175e-03;
    const double draft = drafter == "eagle3" ? eagle : drafter == "ngram" ? verify * 0.005875 : 0;
    return 1e3 * (verify + draft + 1.20683946e-03);
}

TEST(Oracle, PredictsAsThePublishedModelDoes) {
    const MachineProfile profile =
        require(read_profile(DS_SOURCE_DIR "/assets/profiles/h100-llama-3.1-8b-vllm.json"));
    for (const int batch : {1, 8, 64, 128})
        for (const int context : {100, 1000, 4000}) {
            const double plain = published_ms("none", 1, context, batch);
            EXPECT_NEAR(require(predict_method(profile, "none", 1, context, batch)).total_ms(), plain,
                        1e-6 * plain);
            for (const std::string drafter : {"ngram", "eagle3"})
                for (const int length : {1, 3, 5}) {
                    const double ms = published_ms(drafter, length + 1, context, batch);
                    const std::string method = drafter + " @ chain=" + std::to_string(length);
                    EXPECT_NEAR(require(predict_method(profile, method, 2, context, batch)).total_ms(), ms,
                                1e-6 * ms)
                        << method;
                }
            // A text with rounds of 3 and 4 tokens by EAGLE-3, and of 1 and 2 by n-grams.
            const ChainLengths ngram = lengths("ngram", "", {{0, 0, 0, 0, 0, 0, 0, 0, 1, 0}}, context);
            const ChainLengths eagle = lengths("eagle3", "full", {{0, 2, 0, 0, 3, 0, 0, 0, 0, 0}}, context);
            OracleLine line = oracle_line({&ngram, &eagle});
            line.batch = batch;
            ASSERT_TRUE(is_ok(price_oracle(profile, context, line)));
            const double rounds[] = {
                published_ms("ngram", 1, context, batch), published_ms("eagle3", 3, context + 1, batch),
                published_ms("eagle3", 4, context + 4, batch), published_ms("ngram", 2, context + 8, batch)};
            const double ms = (rounds[0] + rounds[1] + rounds[2] + rounds[3]) / 4;
            EXPECT_NEAR(line.round_ms, ms, 1e-9 * ms);
            EXPECT_NEAR(line.speedup(), 10.0 / 4 * plain / ms, 1e-5);
            EXPECT_NEAR(line.tokens_per_second(), 1e3 * batch * 10.0 / 4 / ms, 1e-5 * 1e3 * batch);
        }
}

/// Rounds are dense where little is accepted, so their mean context is not that of the tokens.
TEST(Oracle, SettingsArePricedAtTheContextOfTheirRounds) {
    const MachineProfile profile =
        require(read_profile(DS_SOURCE_DIR "/assets/profiles/h100-llama-3.1-8b-vllm.json"));
    SweepSetting setting;
    setting.drafter = "eagle3";
    setting.head = "full";
    setting.tree = "chain=3";
    setting.batch = 64;
    setting.units = {{10, 20, 10 * 900}, {30, 40, 30 * 500}};
    ASSERT_TRUE(is_ok(price_setting(profile, 400, setting)));
    EXPECT_NEAR(setting.round_ms, published_ms("eagle3", 4, 600, 64), 1e-9);
    EXPECT_NEAR(setting.plain_ms, published_ms("none", 1, 400, 64), 1e-9);
    for (SweepUnit& unit : setting.units) unit.positions = 0;  // as in older files
    ASSERT_TRUE(is_ok(price_setting(profile, 400, setting)));
    EXPECT_NEAR(setting.round_ms, published_ms("eagle3", 4, 400, 64), 1e-9);
}

}  // namespace
}  // namespace draftscope
