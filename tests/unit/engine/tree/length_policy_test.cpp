#include "engine/tree/length_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/tree/draft_tree.h"

namespace draftscope {
namespace {

/// One round: what was accepted, and the length that the policy then chooses.
using Table = std::vector<std::pair<int, int>>;

void expect_lengths(const std::string& text, int first, const Table& rounds) {
    const auto length = parse_adaptive_length(text);
    ASSERT_TRUE(length.ok()) << length.error().message;
    const auto policy = length->begin();
    int drafted = policy->next();
    EXPECT_EQ(drafted, first) << text;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        policy->update(drafted, rounds[i].first);
        drafted = policy->next();
        EXPECT_EQ(drafted, rounds[i].second) << text << " after round " << i;
    }
}

// The tables are worked out by hand from the published rules.

TEST(LengthPolicy, TransformersAddsTwoOrTakesOne) {
    expect_lengths("transformers,start=5", 5, {{5, 7}, {3, 6}, {6, 8}, {0, 7}});
    expect_lengths("transformers,start=2,max=3", 2, {{2, 3}, {3, 3}, {0, 2}, {1, 1}, {0, 1}});
    expect_lengths("transformers", 20, {{20, 20}, {19, 19}});
}

TEST(LengthPolicy, ExllamaFollowsItsMean) {
    // Means: 2, 3.3, 1.155, 0.404, 0.141.
    Table rounds = {{2, 2}, {2, 4}, {0, 2}, {0, 1}, {0, 0}};
    for (int skipped = 2; skipped <= 15; ++skipped) rounds.emplace_back(0, 0);
    rounds.emplace_back(0, 2);  // every 16th round of a pause drafts
    expect_lengths("exllama", 8, rounds);
    // All of eight accepted count as nine.
    expect_lengths("exllama", 8, {{8, 8}, {1, 4}});
    expect_lengths("exllama,skip=0", 8, {{0, 1}, {0, 1}, {1, 3}});
}

TEST(LengthPolicy, SglangStepsAfterItsWarmUp) {
    Table up(14, {3, 3});
    up.emplace_back(3, 5);  // mean 3 - 0.8^15 = 2.965 > 2.5, but not > 4.5
    expect_lengths("sglang", 3, up);
    Table down(14, {0, 3});
    down.emplace_back(0, 1);  // mean 2 * 0.8^15 = 0.07 <= 1 - 0.5 - 0.25
    expect_lengths("sglang", 3, down);
    Table kept(40, {1, 3});  // the mean nears 1: neither <= 0.25 nor > 2.5
    expect_lengths("sglang", 3, kept);
    Table limited(20, {3, 3});
    expect_lengths("sglang,max=4", 3, limited);
}

/// The chain's length for drafts of these probabilities.
int confident_length(const std::string& text, const std::vector<double>& probabilities) {
    std::vector<float> logprobs;
    for (const double p : probabilities) logprobs.push_back(static_cast<float>(std::log(p)));
    return parse_adaptive_length(text).value().limits().length(logprobs);
}

TEST(LengthPolicy, ProbabilitiesEndAChain) {
    const std::vector<double> drafts = {0.9, 0.5, 0.8, 0.1};
    EXPECT_EQ(confident_length("p-min", drafts), 1);
    EXPECT_EQ(confident_length("p-min,p=0.45", drafts), 3);
    EXPECT_EQ(confident_length("confidence", drafts), 4);  // 0.1 is the last, and verified
    EXPECT_EQ(confident_length("confidence,p=0.6", drafts), 2);
    EXPECT_EQ(confident_length("cumulative", drafts), 3);  // 0.9, 0.45, 0.36, 0.036
    EXPECT_EQ(confident_length("cumulative,p=0.4", drafts), 2);
    EXPECT_EQ(confident_length("p-min,p=0", drafts), 4);
    EXPECT_EQ(confident_length("exllama", drafts), 4);
    EXPECT_EQ(confident_length("p-min", {std::nan(""), 0.9, 0.1}), 2);
}

TEST(LengthPolicy, TextsParseToThemselves) {
    const TreeSpec spec = parse_tree_spec("adaptive:exllama , max=6, skip=0").value();
    EXPECT_EQ(to_text(spec), "adaptive:exllama,max=6,skip=0");
    EXPECT_EQ(parse_tree_spec(to_text(spec)).value(), spec);
    EXPECT_EQ(spec.nodes, 7);
    EXPECT_EQ(to_text(parse_tree_spec("adaptive:sglang").value()), "adaptive:sglang");
    EXPECT_FALSE(parse_tree_spec("chain=6").value() == spec);
}

TEST(LengthPolicy, BadTextsAreRefused) {
    for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
             {"adaptive:vllm", "transformers, exllama, sglang, p-min, confidence and cumulative"},
             {"adaptive:p-min,p=1.5", "p=1.5 is not a number in 0..1"},
             {"adaptive:sglang,size=3", "no parameter 'size=3'"},
             {"adaptive:sglang,max=0", "max=0 is not a whole number in 1..64"},
             {"adaptive:exllama,max=2.5", "whole number"},
             {"adaptive:exllama,skip=", "skip= is not a number"}}) {
        const auto spec = parse_tree_spec(text);
        ASSERT_FALSE(spec.ok()) << text;
        EXPECT_NE(spec.error().message.find(part), std::string::npos) << spec.error().message;
    }
}

}  // namespace
}  // namespace draftscope
