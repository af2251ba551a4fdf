#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"

/// Losslessness on the demo model with a covering set: every pair of settings occurs in at least one decode.
/// The program `losslessness_product` runs the full product.
namespace draftscope::testing {
namespace {

struct Factor {
    const char* name;
    std::vector<std::string> values;
};

const std::vector<Factor> factors = {
    {"drafter", {"eagle2", "eagle3", "medusa", "hydra", "ngram", "none"}},
    {"tree",
     {"chain=1", "chain=4", "depth=2,topk=3,nodes=8", "depth=3,topk=4,nodes=12", "depth=4,topk=8,nodes=72",
      "depth=5,topk=10,nodes=60"}},
    {"prompt", {"0", "1", "2"}},
    {"head", {"full", "fr-spec:v=2048", "fr-spec:v=8192", "microspec"}},
    {"threads", {"1", "2", "3"}},
    {"precision", {"int8", "bf16"}},
    {"temperature", {"0", "0.8"}},
    {"batch", {"1", "8"}},
};
using Row = std::array<std::size_t, 8>;
using Pair = std::array<std::size_t, 4>;  ///< factor, value, factor, value

void visit_pairs(const Row& row, std::set<Pair>& out) {
    for (std::size_t a = 0; a < factors.size(); ++a)
        for (std::size_t b = a + 1; b < factors.size(); ++b) out.insert({a, row[a], b, row[b]});
}

/// All pairs of drafter and tree. Each further factor then takes the value that covers the most new pairs.
std::vector<Row> covering_set() {
    std::vector<Row> rows;
    std::set<Pair> met;
    for (std::size_t tree = 0; tree < factors[1].values.size(); ++tree)
        for (std::size_t drafter = 0; drafter < factors[0].values.size(); ++drafter) {
            Row row = {drafter, tree};
            for (std::size_t f = 2; f < factors.size(); ++f) {
                std::size_t best = 0, best_gain = 0;
                for (std::size_t i = 0; i < factors[f].values.size(); ++i) {
                    // A different first value each time varies the rows that cover no new pair.
                    const std::size_t value = (i + drafter + tree) % factors[f].values.size();
                    std::size_t gain = 1;
                    for (std::size_t other = 0; other < f; ++other)
                        gain += met.count({other, row[other], f, value}) == 0 ? 1 : 0;
                    if (gain > best_gain) best_gain = gain, best = value;
                }
                row[f] = best;
            }
            visit_pairs(row, met);
            rows.push_back(row);
        }
    return rows;
}

std::string value(const Row& row, std::size_t factor) {
    return factors[factor].values[row[factor]];
}

TEST(DemoLosslessness, TheSetCoversEveryPair) {
    std::set<Pair> met;
    for (const Row& row : covering_set()) visit_pairs(row, met);
    std::size_t pairs = 0;
    for (std::size_t a = 0; a < factors.size(); ++a)
        for (std::size_t b = a + 1; b < factors.size(); ++b)
            pairs += factors[a].values.size() * factors[b].values.size();
    EXPECT_EQ(met.size(), pairs);
}

TEST(DemoLosslessness, CoveringSetEqualsPlainDecoding) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    constexpr int tokens = 16;
    std::vector<Row> rows = covering_set();
    std::int64_t accepted = 0, rounds = 0;
    for (const std::string& precision : factors[5].values) {
        const auto fixture = make_demo_fixture(*kernels::precision_from(precision));
        ASSERT_NE(fixture, nullptr);
        const auto prompts = demo_prompts(fixture->target(), factors[2].values.size());
        std::map<std::pair<std::string, std::string>, std::vector<TokenId>> plain;
        for (const Row& row : rows) {
            if (value(row, 5) != precision) continue;
            DecodeCase setting{.temperature = std::stod(value(row, 6)), .max_new = tokens};
            const std::vector<TokenId>& prompt = prompts[row[2]];
            std::vector<TokenId>& expected = plain[{value(row, 2), value(row, 6)}];
            setting.threads = 2;
            if (expected.empty()) {
                setting.drafter = "none";
                expected = fixture->decode(setting, {prompt})[0].tokens;
            }
            setting.drafter = value(row, 0);
            setting.tree = value(row, 1);
            setting.head = value(row, 3);
            setting.threads = std::stoi(value(row, 4));
            setting.batch = std::stoi(value(row, 7));
            // In a batch, the other sequences are two other prompts. A third of the tokens keeps the test
            // short.
            if (setting.batch > 1) setting.max_new = tokens / 3;
            std::vector<std::vector<TokenId>> together = {prompt};
            for (std::size_t p = 0; setting.batch > 1 && together.size() < 3; ++p)
                if (p != row[2]) together.push_back(prompts[p]);
            const auto found = fixture->decode(setting, together);
            ASSERT_EQ(found.size(), together.size());
            const auto length = std::min(expected.size(), static_cast<std::size_t>(setting.max_new));
            EXPECT_EQ(found[0].tokens,
                      std::vector(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(length)))
                << to_text(setting) << " x " << precision << " x prompt " << value(row, 2);
            accepted += found[0].accepted;
            rounds += found[0].rounds;
        }
    }
    EXPECT_GT(accepted, rounds / 8);
}

}  // namespace
}  // namespace draftscope::testing
