#include "engine/verify/simulated_acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/numel.h"
#include "tests/support/tree_verifier.h"

namespace draftscope::testing {
namespace {

/// A chain of `depth` drafts under a root, and a sibling of the first draft.
DraftTree chain_with_sibling(int depth) {
    DraftTree tree = DraftTree::with_root(1);
    int at = 0;
    for (int i = 0; i < depth; ++i) {
        const int next = tree.add(10 + i, at, -0.1f);
        if (i == 0) tree.add(99, 0, -3.0f);
        at = next;
    }
    return tree;
}

std::vector<int> accepted(const SimulatedAcceptance& replayed, int depth, int rounds) {
    const DraftTree tree = chain_with_sibling(depth);
    // The target's token after every node is 7.
    std::vector<float> logits(numel(tree.size(), 8), 0.0f);
    for (int n = 0; n < tree.size(); ++n) logits[numel(n, 8) + 7] = 1.0f;
    std::vector<int> counts(static_cast<std::size_t>(depth) + 1, 0);
    const RulePtr rule = make_simulated_rule(replayed, match_rule());
    const auto exec = kernels::make_cpu_backend(1);
    Sampling sampling;
    sampling.seed = 3;
    for (int round = 0; round < rounds; ++round) {
        const Acceptance found =
            verify_tree((*exec), *rule, tree, Rows<const float>(logits.data(), tree.size(), 8), 8, sampling,
                        {0, 100 * round})
                .acceptance;
        EXPECT_EQ(found.bonus, 7);
        for (std::size_t i = 1; i < found.path.size(); ++i)
            EXPECT_EQ(tree.parents[found.path[i]], found.path[i - 1]);
        ++counts[found.path.size() - 1];
    }
    return counts;
}

TEST(SimulatedAcceptance, AcceptsDraftsAtRatesByDepth) {
    const auto parsed = parse_acceptance("rate:0.9/0.5", "full");
    ASSERT_TRUE(parsed.ok() && *parsed);
    constexpr int rounds = 20000;
    const std::vector<int> counts = accepted(**parsed, 3, rounds);
    const double expected[] = {0.1, 0.9 * 0.5, 0.9 * 0.5 * 0.5, 0.9 * 0.5 * 0.5};
    for (int i = 0; i <= 3; ++i) {
        const double p = expected[i], sigma = std::sqrt(p * (1 - p) * rounds);
        EXPECT_NEAR(counts[i], p * rounds, 5 * sigma) << i;
    }
    EXPECT_EQ(accepted(**parse_acceptance("rate:1", "full"), 4, 50).back(), 50);
    EXPECT_EQ(accepted(**parse_acceptance("rate:0", "full"), 4, 50).front(), 50);
}

TEST(SimulatedAcceptance, UsesHistogramOfReplayJson) {
    const auto path = std::filesystem::temp_directory_path() / "draftscope_acceptance.json";
    std::ofstream(path) << R"({"heads": [{"head": "full", "histogram": [10, 0, 30]},
                                          {"head": "fr-spec", "histogram": [1]}]})";
    const std::string trace = "trace:" + path.string();
    const auto full = parse_acceptance(trace, "full");
    ASSERT_TRUE(full.ok() && *full);
    // Of 40 rounds, 30 accepted the first draft, all of these the second, none a third.
    EXPECT_EQ((*full)->rates, (std::vector<double>{0.75, 1.0, 0.0}));
    const std::vector<int> counts = accepted(**full, 5, 8000);
    EXPECT_NEAR(counts[0], 2000, 200);
    EXPECT_EQ(counts[1], 0);
    EXPECT_NEAR(counts[2], 6000, 200);
    EXPECT_EQ(counts[3] + counts[4] + counts[5], 0);
    // The run's head, unless another is named.
    EXPECT_EQ((**parse_acceptance(trace, "fr-spec")).rates, std::vector<double>{0.0});
    EXPECT_EQ((**parse_acceptance(trace + "#full", "fr-spec")).rates, (**full).rates);
    for (const auto& missing :
         {parse_acceptance(trace, "slimspec"), parse_acceptance(trace + "#slimspec", "full"),
          parse_acceptance(trace + "#", "full")}) {
        ASSERT_FALSE(missing.ok());
        EXPECT_NE(missing.error().message.find("the file has full, fr-spec"), std::string::npos)
            << missing.error().message;
    }
    EXPECT_NE(parse_acceptance(trace, "").error().message.find("without heads"), std::string::npos);
    std::filesystem::remove(path);
}

TEST(SimulatedAcceptance, DraftsAsTheVerifyingRule) {
    const SimulatedAcceptance rates{{0.5}};
    const RulePtr pq = make_simulated_rule(rates, make_rule("pq").value());
    EXPECT_TRUE(pq->needs().sampled_drafts);
    EXPECT_FALSE(make_simulated_rule(rates, match_rule())->needs().sampled_drafts);
    // It is no rule of --verify, and stays in effect at temperature 0.
    EXPECT_EQ(rule_in_effect(pq, 0), pq);
    EXPECT_EQ(pq->info().losslessness, Losslessness::lossy);
    EXPECT_EQ(find_rule(pq->info().id), nullptr);
}

TEST(SimulatedAcceptance, ErrorsNameTheProblem) {
    EXPECT_TRUE(parse_acceptance("real", "full").ok());
    EXPECT_FALSE(parse_acceptance("real", "full")->has_value());
    for (const char* text :
         {"rate:", "rate:1.5", "rate:0.5/", "rate:x", "rate:nan", "often", "trace:/none/such.json"}) {
        const auto parsed = parse_acceptance(text, "full");
        ASSERT_FALSE(parsed.ok()) << text;
        EXPECT_EQ(parsed.error().kind, ErrorKind::bad_input);
    }
}

}  // namespace
}  // namespace draftscope::testing
