#include "stats/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stats/bench_table.h"

namespace draftscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr VerifyShape chain{4, 1}, tree{12, 1};

TEST(Drift, ComparesOnlyEqualTrees) {
    const VerifyPair pair{{{chain, {10, 1000}}, {tree, {4, 800}}}, {{chain, {5, 1000}}}};
    const MatchedTime time = matched(pair);
    EXPECT_DOUBLE_EQ(time.rounds, 5);
    EXPECT_DOUBLE_EQ(time.a_ns, 500);
    EXPECT_DOUBLE_EQ(time.b_ns, 1000);
    const auto control = machine_control(std::vector{pair});
    ASSERT_TRUE(control);
    EXPECT_DOUBLE_EQ(control->ratio.value, 2);
    EXPECT_FALSE(control->differs) << "one conversation tells nothing";
    EXPECT_TRUE(control->is_large());
    EXPECT_FALSE(machine_control(std::vector{VerifyPair{{{chain, {1, 1}}}, {{tree, {1, 1}}}}}));
    EXPECT_FALSE(machine_control({}));
}

/// Two methods and twelve conversations in three blocks; the second method verifies at `factor`, block b at
/// `of_block[b]`.
BenchSamples samples(double factor, const std::vector<double>& of_block) {
    BenchSamples out;
    out.methods.resize(2);
    for (std::size_t c = 0; c < 12; ++c) out.prompts.push_back({"", c, c / 4 % of_block.size()});
    for (std::size_t m = 0; m < 2; ++m) {
        out.methods[m].verify.assign(1, std::vector<VerifyTimes>(12));
        for (std::size_t c = 0; c < 12; ++c) {
            const double ns = (m == 1 ? factor : 1) * of_block[out.prompts[c].block] * (100 + c % 3);
            out.methods[m].verify[0][c] = {{chain, {20, 20 * ns}}};
        }
    }
    return out;
}

const std::vector<std::string> names = {"full", "small"};

TEST(BenchDriftTest, NoWarningOnASteadyMachine) {
    EXPECT_THAT(drift_warnings(bench_drift(samples(1, {1, 1, 1})), names), IsEmpty());
    EXPECT_THAT(drift_warnings(bench_drift(samples(1.03, {1, 1.05, 1})), names), IsEmpty());
}

TEST(BenchDriftTest, WarnsOfASlowerMachine) {
    const BenchDrift drift = bench_drift(samples(1.2, {1, 1, 1}));
    ASSERT_EQ(drift.methods.size(), 1u);
    EXPECT_NEAR(drift.methods[0].control.ratio.value, 1.2, 1e-9);
    EXPECT_THAT(drift_warnings(drift, names),
                ElementsAre(HasSubstr("20.0 % more time per round under small than under full")));
}

TEST(BenchDriftTest, WarnsOfVaryingBlocks) {
    const BenchDrift drift = bench_drift(samples(1, {0.8, 1, 1.2}));
    ASSERT_EQ(drift.blocks.size(), 2u);
    EXPECT_NEAR(drift.blocks[0].low, 0.8, 0.01);
    EXPECT_NEAR(drift.blocks[0].high, 1.2, 0.01);
    EXPECT_THAT(drift_warnings(drift, names), ElementsAre(HasSubstr("varied")));
}

TEST(BenchDriftTest, WarnsOfASingleBlock) {
    EXPECT_THAT(drift_warnings(bench_drift(samples(1, {1})), names),
                ElementsAre(HasSubstr("did not take turns")));
}

}  // namespace
}  // namespace draftscope
