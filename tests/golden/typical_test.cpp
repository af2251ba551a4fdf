#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/tree_verifier.h"

/// Compares typical acceptance with its published form over root-to-leaf paths
/// (tools/make_typical_golden.py).
namespace draftscope {
namespace {

TEST(TypicalGolden, MatchesThePublishedRule) {
    std::ifstream file(std::string(DS_SOURCE_DIR) + "/tests/golden/engine/typical.json");
    ASSERT_TRUE(file.good());
    const auto document = nlohmann::json::parse(file);
    const RulePtr rule = make_rule("typical").value();
    EXPECT_EQ(rule->text(), fmt::format("typical:epsilon={},delta={}", document["epsilon"].get<double>(),
                                        document["delta"].get<double>()));
    const auto exec = kernels::make_cpu_backend(1);
    int drafts = 0, forks = 0;
    for (const auto& one : document["cases"]) {
        const auto tokens = one["tokens"].get<std::vector<TokenId>>();
        const auto parents = one["parents"].get<std::vector<int>>();
        DraftTree tree = DraftTree::with_root(tokens[0]);
        for (std::size_t i = 1; i < tokens.size(); ++i) tree.add(tokens[i], parents[i], -1.0f);
        ASSERT_TRUE(tree.finish().ok());
        std::vector<float> logits;
        for (const auto& row : one["logits"])
            for (const auto& value : row) logits.push_back(value.get<float>());
        const int vocab = static_cast<int>(one["logits"][0].size());
        const Rows<const float> rows(logits.data(), tree.size(), vocab);
        const Sampling sampling{one["temperature"].get<double>(), 1.0, 0, 1};
        const auto [choices, found] = testing::verify_tree((*exec), *rule, tree, rows, vocab, sampling, {});
        const auto path = one["path"].get<std::vector<int>>();
        EXPECT_EQ(found.path, path);
        EXPECT_EQ(found.bonus, one["bonus"].get<TokenId>());
        // The choices equal the emitted tokens.
        for (std::size_t i = 0; i < path.size(); ++i)
            EXPECT_EQ(choices[path[i]].token, i + 1 < path.size() ? tokens[path[i + 1]] : found.bonus);
        drafts += static_cast<int>(path.size()) - 1;
        forks += path.back() != static_cast<int>(path.size()) - 1 ? 1 : 0;
    }
    EXPECT_GT(drafts, 60);
    EXPECT_GT(forks, 10);
}

}  // namespace
}  // namespace draftscope
