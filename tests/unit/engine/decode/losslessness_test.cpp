#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/registry.h"
#include "tests/support/results.h"
#include "tests/support/tiny_decode.h"

/// Speculative output equals plain decoding token for token, for every drafter, head, tree, batch and thread
/// count. The full product runs on a small random model.
namespace draftscope::testing {
namespace {

const std::vector<std::string> trees = {"chain=1",
                                        "chain=4",
                                        "depth=2,topk=3,nodes=8",
                                        "depth=3,topk=4,nodes=12",
                                        "depth=5,topk=10,nodes=60",
                                        "depth=4,topk=8,nodes=100,order=fr",
                                        "choices:mc_sim_7b_63"};
const std::vector<std::string> heads = {"full", "fr-spec:v=3", "fr-spec:v=6", "fr-spec:v=12"};

std::vector<std::string> drafter_ids() {
    std::vector<std::string> ids;
    for (const DrafterInfo& info : drafter_registry()) ids.emplace_back(info.id);
    return ids;
}

using PrecisionAndDrafter = std::tuple<kernels::Precision, std::string>;

class Losslessness : public ::testing::TestWithParam<PrecisionAndDrafter>, protected TinyDecode {
  protected:
    Losslessness() : TinyDecode(few_token_options(), precision(), few_tokens) {}

    static kernels::Precision precision() { return std::get<0>(GetParam()); }
    static const std::string& drafter() { return std::get<1>(GetParam()); }

    /// `base` with the drafter and every head and tree, alone and in batches of three. Heads vary only for
    /// drafters that use one. The product over thread counts runs with one precision, because all share the
    /// code that splits the work.
    static std::vector<DecodeCase> product(const DecodeCase& base) {
        std::vector<DecodeCase> settings;
        for (const std::string& head : drafter_heads())
            for (const std::string& tree : trees)
                for (const auto& [threads, batch] : workers()) {
                    settings.push_back(base);
                    settings.back().drafter = drafter();
                    settings.back().head = head;
                    settings.back().tree = tree;
                    settings.back().threads = threads;
                    settings.back().batch = batch;
                }
        return settings;
    }
    static const DrafterInfo& info() { return *find_drafter(drafter()); }
    /// Drafters call a head in the same way, so one of them has all heads and all thread counts.
    static bool has_all() { return info().eagle == EagleGeneration::eagle2; }
    static std::vector<std::string> drafter_heads() {
        if (has_all()) return heads;
        if (!info().uses_head) return {"full"};
        return {"full", "fr-spec:v=6"};
    }
    static std::vector<std::pair<int, int>> workers() {
        if (precision() != kernels::Precision::int8 || (info().uses_head && !has_all()))
            return {{2, 1}, {1, 3}};
        return {{1, 1}, {2, 1}, {3, 1}, {2, 3}};
    }
};

TEST_P(Losslessness, FullProductEqualsPlainDecoding) {
    std::int64_t accepted = 0, rounds = 0;
    for (const double temperature : {0.0, 0.8}) {
        const DecodeCase plain = {
            .drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = 24};
        const auto expected = fixture_.decode(plain, varied_prompts());
        ASSERT_EQ(expected.size(), 3u);
        for (const DecodeCase& setting : product(plain)) {
            const auto found = fixture_.decode(setting, varied_prompts());
            ASSERT_EQ(found.size(), expected.size());
            for (std::size_t p = 0; p < found.size(); ++p) {
                ASSERT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
                accepted += found[p].accepted;
                rounds += found[p].rounds;
            }
        }
    }
    // If nothing had been accepted, equality would prove nothing.
    if (drafter() == "none") return;
    EXPECT_GT(accepted, 50);
    if (drafter() != "eagle2") return;
    EXPECT_GT(accepted, rounds / 8);
    EXPECT_GT(rounds, 1000);
}

/// A fixed tree needs a head for each of its levels. A dynamic tree ends with the heads.
TEST(FixedTrees, AreNoDeeperThanTheHeads) {
    const auto exec = kernels::make_cpu_backend(1);
    const auto target =
        DecodeFixture::build(make_tiny_model(21, few_token_options()), kernels::Precision::f32);
    const TinyDecodingHeads three(target->config(), false, 81, 3);
    const TinyEagle2 eagle(target->config(), 77);
    const auto made = require(make_drafter("medusa:" + three.folder(), "", *target, *exec));
    const auto tree = [](const char* text) { return parse_tree_spec(text).value(); };
    const Status refused = check_tree(*made, tree("choices:mc_sim_7b_63"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_NE(refused.error().message.find("4 levels, but the drafter has only 3 heads"), std::string::npos)
        << refused.error().message;
    EXPECT_TRUE(check_tree(*made, tree("choices:mc_sim_7b_63,levels=3")).ok());
    EXPECT_TRUE(check_tree(*made, tree("depth=5,topk=10,nodes=60")).ok());
    const auto deeper = require(make_drafter("eagle2:" + eagle.folder(), "", *target, *exec));
    EXPECT_TRUE(check_tree(*deeper, tree("choices:eagle_mc_sim_7b_63")).ok());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Losslessness,
                         ::testing::Combine(::testing::Values(kernels::Precision::f32,
                                                              kernels::Precision::bf16,
                                                              kernels::Precision::int8),
                                            ::testing::ValuesIn(drafter_ids())),
                         [](const auto& instance) {
                             std::string name = std::string(kernels::to_text(std::get<0>(instance.param))) +
                                                "_" + std::get<1>(instance.param);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace draftscope::testing
