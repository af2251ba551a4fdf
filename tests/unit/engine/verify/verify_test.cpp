#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/rng.h"
#include "engine/verify/acceptance_rule.h"
#include "engine/verify/tree_path.h"
#include "tests/support/results.h"
#include "tests/support/tree_verifier.h"

namespace draftscope {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

std::vector<TargetSample> choose(const std::vector<std::vector<float>>& rows, int vocab,
                                 const Sampling& sampling, std::uint64_t sequence = 0,
                                 std::int64_t first_position = 0, int threads = 1) {
    const auto exec = kernels::make_cpu_backend(threads);
    std::vector<float> data;
    std::vector<TokenPosition> places;
    for (const auto& row : rows) {
        data.insert(data.end(), row.begin(), row.end());
        places.push_back({sequence, first_position + static_cast<std::int64_t>(places.size())});
    }
    std::vector<TargetSample> out;
    sample_tokens(
        *exec,
        Rows<const float>(data.data(), static_cast<int>(rows.size()), static_cast<int>(rows[0].size())),
        vocab, sampling, places, out);
    return out;
}

Sampling sampled(double temperature, int top_k = 0, double top_p = 1.0, std::uint64_t seed = 1) {
    return {temperature, top_p, top_k, seed};
}

TEST(SampleTokens, GreedyTakesLowerIdOfTieAndNoPaddingRow) {
    const auto choices = choose({{1, 3, 3, 0, 9}, {5, 1, 1, 1, 9}}, 4, {});
    EXPECT_EQ(choices[0].token, 1);
    EXPECT_EQ(choices[1].token, 0);
    const double norm = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(0.0);
    EXPECT_NEAR(choices[0].prob, std::exp(3.0) / norm, 1e-6);
    EXPECT_NEAR(target_probability(choices[0], {}, 1.0f), std::exp(1.0) / norm, 1e-6);
}

/// Returns the shares of 20 000 samples at as many positions.
std::vector<double> shares(const std::vector<float>& row, const Sampling& sampling) {
    constexpr int draws = 20'000, batch = 500;
    std::vector<double> share(row.size(), 0.0);
    for (int first = 0; first < draws; first += batch) {
        const std::vector<std::vector<float>> rows(batch, row);
        for (const TargetSample& c : choose(rows, static_cast<int>(row.size()), sampling, 3, first))
            share[c.token] += 1.0 / draws;
    }
    return share;
}

TEST(SampleTokens, SharesFollowTemperedDistribution) {
    const std::vector<float> row = {0.0f, 1.0f, never, 2.0f};
    const auto share = shares(row, sampled(0.5));
    const double norm = std::exp(0.0) + std::exp(2.0) + std::exp(4.0);
    // Four standard deviations of a share of 20 000 draws are below 0.0142.
    EXPECT_NEAR(share[0], std::exp(0.0) / norm, 0.0142);
    EXPECT_NEAR(share[1], std::exp(2.0) / norm, 0.0142);
    EXPECT_EQ(share[2], 0.0);
    EXPECT_NEAR(share[3], std::exp(4.0) / norm, 0.0142);
}

TEST(SampleTokens, TopKKeepsLowerIdsOfTie) {
    const auto share = shares({1, 2, 2, 2}, sampled(1.0, 2));
    EXPECT_EQ(share[0], 0.0);
    EXPECT_NEAR(share[1], 0.5, 0.0142);
    EXPECT_NEAR(share[2], 0.5, 0.0142);
    EXPECT_EQ(share[3], 0.0);
}

TEST(SampleTokens, TopPKeepsSmallestSetThatReachesIt) {
    // Probabilities .1, .2, .3, .4: 0.65 needs .4 and .3.
    const std::vector<float> row = {std::log(.1f), std::log(.2f), std::log(.3f), std::log(.4f)};
    const auto share = shares(row, sampled(1.0, 0, 0.65));
    EXPECT_EQ(share[0] + share[1], 0.0);
    EXPECT_NEAR(share[2], 3.0 / 7, 0.0142);
    const auto one = choose({row}, 4, sampled(1.0, 0, 1e-9));
    EXPECT_EQ(one[0].token, 3);
    EXPECT_NEAR(one[0].prob, 1.0, 1e-6);
    EXPECT_EQ(target_probability(one[0], sampled(1.0, 0, 1e-9), row[2]), 0.0f);
}

TEST(SampleTokens, SampleDependsOnlyOnSequenceAndPosition) {
    Rng rng(5);
    std::vector<std::vector<float>> rows(40, std::vector<float>(700));
    for (auto& row : rows)
        for (float& value : row) value = static_cast<float>(rng.normal());
    const auto together = choose(rows, 690, sampled(0.9), 4, 100);
    const auto threaded = choose(rows, 690, sampled(0.9), 4, 100, 3);
    int other_sequence = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto position = 100 + static_cast<std::int64_t>(i);
        const auto alone = choose({rows[i]}, 690, sampled(0.9), 4, position);
        EXPECT_EQ(together[i].token, alone[0].token);
        EXPECT_EQ(together[i].prob, alone[0].prob);
        EXPECT_EQ(together[i].token, threaded[i].token);
        EXPECT_LT(together[i].token, 690);
        other_sequence += choose({rows[i]}, 690, sampled(0.9), 5, position)[0].token != alone[0].token;
    }
    EXPECT_GT(other_sequence, 20);
}

TEST(SampleTokens, SurvivesRowsWithoutUsableLogit) {
    const float bad = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(choose({{never, never}}, 2, sampled(1.0))[0].token, 0);
    EXPECT_EQ(choose({{bad, 1.0f}}, 2, sampled(1.0, 1))[0].token, 1);
    EXPECT_EQ(choose({{bad, 1.0f}}, 2, sampled(1.0, 0, 0.5))[0].token, 1);
    EXPECT_EQ(choose({{3.0f, 1.0f}}, 2, sampled(1e-30))[0].token, 0);
}

TEST(AcceptMatch, FollowsTargetTokens) {
    DraftTree tree = DraftTree::with_root(10);
    const int a = tree.add(1, 0, -1), b = tree.add(2, 0, -1);
    tree.add(3, a, -1);
    const int d = tree.add(4, b, -1);
    tree.add(5, d, -1);
    std::vector<TargetSample> choices(6);
    choices[0].token = 2;
    choices[2].token = 4;
    choices[4].token = 9;
    const Acceptance found = testing::follow_choices(tree, choices);
    EXPECT_EQ(found.path, (std::vector<int>{0, 2, 4}));
    EXPECT_EQ(found.bonus, 9);

    choices[0].token = 77;
    const Acceptance none = testing::follow_choices(tree, choices);
    EXPECT_EQ(none.path, std::vector<int>{0});
    EXPECT_EQ(none.bonus, 77);
}

TEST(FollowPath, StopsWhereTheTextLeavesTheTree) {
    DraftTree tree = DraftTree::with_root(10);
    const int a = tree.add(1, 0, -1), b = tree.add(2, 0, -1);
    tree.add(3, a, -1);
    const int d = tree.add(3, b, -1);
    const auto path = [&](std::vector<TokenId> text) { return follow_path(tree, text); };
    EXPECT_EQ(path({2, 3, 4}), (std::vector<int>{0, b, d}));
    EXPECT_EQ(path({2, 3}), (std::vector<int>{0, b, d}));
    EXPECT_EQ(path({1, 2}), (std::vector<int>{0, a}));
    EXPECT_EQ(path({7, 1}), std::vector<int>{0});
    EXPECT_EQ(path({}), std::vector<int>{0});
}

TEST(RuleRegistry, NamesAreUniqueAndTextsParse) {
    std::set<std::string_view> names;
    for (const RuleInfo* rule : rule_registry()) {
        SCOPED_TRACE(std::string(rule->id));
        EXPECT_TRUE(names.insert(rule->id).second);
        for (const std::string_view alias : rule->aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
        EXPECT_FALSE(rule->summary.empty());
        if (rule->is_simulated()) continue;
        const auto made = require(make_rule(rule->id));
        EXPECT_EQ(&made->info(), rule);
        // The canonical text has every parameter with its default.
        const std::string_view colon = rule->parameters.empty() ? "" : ":";
        EXPECT_EQ(made->text(), fmt::format("{}{}{}", rule->id, colon, rule->parameters));
        EXPECT_EQ(make_rule(made->text()).value()->text(), made->text());
        for (const std::string_view alias : rule->aliases)
            EXPECT_EQ(make_rule(alias).value()->text(), made->text());
        // At temperature 0 every published rule is greedy exact match.
        EXPECT_EQ(rule_in_effect(made, 0), match_rule());
        EXPECT_EQ(rule_in_effect(made, 0.5), made);
    }
}

TEST(RuleRegistry, ParametersAndErrors) {
    EXPECT_EQ(make_rule("typical:delta=0.5").value()->text(), "typical:epsilon=0.09,delta=0.5");
    const auto message = [](const char* text) {
        const auto made = make_rule(text);
        EXPECT_EQ(made.ok() ? ErrorKind::failed : made.error().kind, ErrorKind::bad_input) << text;
        return made.ok() ? std::string() : made.error().message;
    };
    EXPECT_TRUE(message("mostly").starts_with("--verify mostly: unknown rule; known are match, "));
    EXPECT_TRUE(message("mostly").ends_with(" and typical[:epsilon=0.09,delta=0.3]"));
    for (const RuleInfo* rule : rule_registry())
        EXPECT_EQ(message("mostly").find(rule->id) == std::string::npos, rule->is_simulated()) << rule->id;
    EXPECT_EQ(message("simulated").substr(0, 34), "--verify simulated: unknown rule; ");
    EXPECT_EQ(message("pq:x=1"), "--verify pq: takes no parameters, found 'x=1'");
    for (const char* text : {"typical:", "typical:alpha=1", "typical:epsilon=0.1,"})
        EXPECT_NE(message(text).find("known are epsilon and delta"), std::string::npos) << text;
    for (const char* text : {"typical:epsilon=2", "typical:delta=", "typical:delta=0.3x", "typical:epsilon"})
        EXPECT_NE(message(text).find("above 0 and at most 1"), std::string::npos) << text;
}

/// Along the accepted path the choices are what is emitted, elsewhere the target's best tokens.
TEST(TypicalRule, EmitsTheAcceptedPath) {
    DraftTree tree = DraftTree::with_root(0);
    const int a = tree.add(1, 0, -1);
    const int b = tree.add(2, a, -1);
    LogitsResult answers;
    answers.best = 1;
    answers.best_ids = {9, 5, 6, 7};
    answers.best_logits = {0, 1, 1, 1};
    answers.logits = {0, 0, 0.5f, 0.25f};
    std::vector<TargetSample> choices(3, TargetSample{8, 0.5f, 2.0f, never});
    const Sampling sampling{1.0, 1.0, 0, 1};
    const std::vector<int> path = {0, a};
    Acceptance found;
    make_rule("typical").value()->accept(tree, {sampling, choices, answers, 1}, path, found);
    EXPECT_EQ(found.path, path);
    EXPECT_EQ(found.bonus, 6);
    EXPECT_EQ(choices[0].token, 1);
    EXPECT_EQ(choices[0].prob, std::exp(0.5f - 2.0f));
    EXPECT_EQ(choices[a].prob, std::exp(1.0f - 2.0f));
    EXPECT_EQ(choices[b].token, 7);
}

}  // namespace
}  // namespace draftscope
