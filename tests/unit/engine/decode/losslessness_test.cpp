#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "engine/draft/eagle_checkpoint.h"
#include "engine/draft/registry.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/ranking_file.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

/// Speculative output equals plain decoding token for token, for every drafter, head, tree, batch and thread
/// count. The full product runs on a small random model.
namespace draftscope::testing {
namespace {

constexpr int vocab = 13;

/// With so few tokens, a random drafter's trees are often right several levels deep.
TinyModelOptions small_vocabulary() {
    TinyModelOptions options;
    options.vocab = vocab;
    options.context = 256;
    return options;
}

std::vector<std::vector<TokenId>> prompts() {
    // One token, repeated tokens, and more tokens than a prefill chunk.
    std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
    for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
    Rng rng(3);
    for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(vocab)));
    return all;
}

const std::vector<std::string> trees = {"chain=1",
                                        "chain=4",
                                        "depth=2,topk=3,nodes=8",
                                        "depth=3,topk=4,nodes=12",
                                        "depth=5,topk=10,nodes=60",
                                        "depth=4,topk=8,nodes=100,order=fr",
                                        "choices:mc_sim_7b_63"};
const std::vector<std::string> heads = {"full", "fr-spec:v=3", "fr-spec:v=6", "fr-spec:v=12"};

class Losslessness : public ::testing::TestWithParam<kernels::Precision> {
  protected:
    Losslessness()
        : target_(DecodeFixture::build(make_tiny_model(21, small_vocabulary()), GetParam())),
          eagle_(target_->config(), 77),
          eagle3_(target_->config(), 78, vocab),
          medusa_(target_->config(), false, 79),
          hydra_(target_->config(), true, 80),
          ranking_(RankingFile::shuffled(target_->config().vocab)),
          fixture_(std::move(target_),
                   {{"eagle2", eagle_.folder()},
                    {"eagle3", eagle3_.folder()},
                    {"medusa", medusa_.folder()},
                    {"hydra", hydra_.folder()}},
                   ranking_.path()) {}

    /// `base` with every drafter, head and tree, alone and in batches of three. Heads vary only for drafters
    /// that use one. The product over thread counts runs with one precision, because all share the code that
    /// splits the work.
    static std::vector<DecodeCase> product(const DecodeCase& base) {
        std::vector<DecodeCase> settings;
        for (const DrafterInfo& drafter : drafter_registry())
            for (const std::string& head : heads_of(drafter))
                for (const std::string& tree : trees)
                    for (const auto& [threads, batch] : workers(drafter)) {
                        settings.push_back(base);
                        settings.back().drafter = drafter.id;
                        settings.back().head = head;
                        settings.back().tree = tree;
                        settings.back().threads = threads;
                        settings.back().batch = batch;
                    }
        return settings;
    }
    /// Drafters call a head in the same way, so one of them has all heads and all thread counts.
    static bool has_all(const DrafterInfo& drafter) { return drafter.eagle == EagleGeneration::eagle2; }
    static std::vector<std::string> heads_of(const DrafterInfo& drafter) {
        if (has_all(drafter)) return heads;
        if (!drafter.uses_head) return {"full"};
        return {"full", "fr-spec:v=6"};
    }
    static std::vector<std::pair<int, int>> workers(const DrafterInfo& drafter) {
        if (GetParam() != kernels::Precision::int8 || (drafter.uses_head && !has_all(drafter)))
            return {{2, 1}, {1, 3}};
        return {{1, 1}, {2, 1}, {3, 1}, {2, 3}};
    }

    std::unique_ptr<Target> target_;
    TinyEagle2 eagle_;
    TinyEagle3 eagle3_;
    TinyDecodingHeads medusa_, hydra_;
    RankingFile ranking_;
    DecodeFixture fixture_;
};

TEST_P(Losslessness, FullProductEqualsPlainDecoding) {
    std::map<std::string, std::int64_t> accepted, rounds;
    for (const double temperature : {0.0, 0.8}) {
        DecodeCase plain;
        plain.drafter = "none";
        plain.tree = "chain=1";
        plain.temperature = temperature;
        plain.max_new = 24;
        const auto expected = fixture_.decode(plain, prompts());
        ASSERT_EQ(expected.size(), 3u);
        for (DecodeCase setting : product(plain)) {
            const auto found = fixture_.decode(setting, prompts());
            ASSERT_EQ(found.size(), expected.size());
            for (std::size_t p = 0; p < found.size(); ++p) {
                ASSERT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
                accepted[setting.drafter] += found[p].accepted;
                rounds[setting.drafter] += found[p].rounds;
            }
        }
    }
    // If nothing had been accepted, equality would prove nothing.
    EXPECT_GT(accepted["eagle2"], rounds["eagle2"] / 8);
    EXPECT_GT(rounds["eagle2"], 1000);
    for (const char* drafter : {"ngram", "eagle3", "medusa", "hydra"})
        EXPECT_GT(accepted[drafter], 50) << drafter;
}

/// A fixed tree needs a head for each of its levels. A dynamic tree ends with the heads.
TEST_P(Losslessness, FixedTreesAreNoDeeperThanTheHeads) {
    const TinyDecodingHeads three(fixture_.target().config(), false, 81, 3);
    const auto made = make_drafter("medusa:" + three.folder(), "", fixture_.target(), fixture_.exec(1));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto tree = [](const char* text) { return parse_tree_spec(text).value(); };
    const Status refused = check_tree(**made, tree("choices:mc_sim_7b_63"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_NE(refused.error().message.find("4 levels, but the drafter has only 3 heads"), std::string::npos)
        << refused.error().message;
    EXPECT_TRUE(check_tree(**made, tree("choices:mc_sim_7b_63,levels=3")).ok());
    EXPECT_TRUE(check_tree(**made, tree("depth=5,topk=10,nodes=60")).ok());
    EXPECT_TRUE(check_tree(fixture_.drafter("eagle2"), tree("choices:eagle_mc_sim_7b_63")).ok());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Losslessness,
                         ::testing::Values(kernels::Precision::f32, kernels::Precision::bf16,
                                           kernels::Precision::int8),
                         [](const auto& instance) { return std::string(kernels::to_text(instance.param)); });

}  // namespace
}  // namespace draftscope::testing
