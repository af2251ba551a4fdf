#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "engine/heads/artefact.h"
#include "kernels/cpu/row_ops.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_decode.h"
#include "tests/support/tree_verifier.h"

/// Rejection sampling: the output is distributed as the target's text, whatever was drafted.
namespace draftscope::testing {
namespace {

constexpr int vocab = 13;

/// Reference in double over sorted tokens: softmax(logits / T), then top-k, then top-p.
std::vector<double> distribution(const std::vector<float>& logits, const Sampling& sampling) {
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    if (sampling.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(sampling.top_k)));
    std::vector<double> p(logits.size(), 0.0);
    double sum = 0;
    for (const int id : order) {
        p[id] = std::exp(static_cast<double>(logits[id]) / sampling.temperature);
        sum += p[id];
    }
    double kept = 0;
    for (const int id : order) {
        double& weight = p[id];
        const double share = weight / sum;
        weight = kept < sampling.top_p ? share : 0.0;
        kept += share;
    }
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& weight : p) weight /= total;
    return p;
}

struct ChiSquare {
    double statistic = 0;
    int freedom = -1;
    bool impossible = false;  ///< a token of probability 0 occurred
    /// Exceeds the mean by 5 standard deviations of the chi-square distribution.
    bool rejects() const { return impossible || statistic > freedom + 5 * std::sqrt(2.0 * freedom); }
};
/// Cells with an expected count below 5 are merged.
ChiSquare chi_square(const std::vector<double>& probabilities, const std::vector<int>& counts) {
    const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
    ChiSquare result;
    double rare_expected = 0, rare_count = 0;
    const auto add = [&](double expected, double count) {
        result.statistic += (count - expected) * (count - expected) / expected;
        ++result.freedom;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = n * probabilities[i];
        if (expected <= 0) {
            result.impossible |= counts[i] > 0;
        } else if (expected < 5) {
            rare_expected += expected;
            rare_count += counts[i];
        } else {
            add(expected, counts[i]);
        }
    }
    if (rare_expected > 0) add(rare_expected, rare_count);
    return result;
}

TEST(SampleDrafts, SamplesWithoutReplacement) {
    const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f};
    const DraftDistribution q = distribution_of({2, 3, 5, 7, 11}, logits, {0.8});
    EXPECT_NEAR(std::accumulate(q.probs.begin(), q.probs.end(), 0.0), 1.0, 1e-6);
    std::vector<double> pairs;
    for (std::size_t a = 0; a < 5; ++a)
        for (std::size_t b = 0; b < 5; ++b)
            pairs.push_back(a == b ? 0.0
                                   : static_cast<double>(q.probs[a]) * static_cast<double>(q.probs[b]) /
                                         (1.0 - static_cast<double>(q.probs[a])));
    std::vector<int> counts(25, 0);
    const std::map<TokenId, std::size_t> index = {{2, 0}, {3, 1}, {5, 2}, {7, 3}, {11, 4}};
    for (std::uint64_t sequence = 0; sequence < 20000; ++sequence) {
        const auto drawn = sample_drafts(q, 2, {0.8, 9}, sequence, 17);
        ASSERT_EQ(drawn.size(), 2u);
        ++counts[index.at(drawn[0].token) * 5 + index.at(drawn[1].token)];
    }
    const ChiSquare fit = chi_square(pairs, counts);
    EXPECT_FALSE(fit.rejects()) << fit.statistic << " with " << fit.freedom;
    // At most as many tokens as q has, each once.
    const auto drawn = sample_drafts(q, 9, {0.8, 9}, 3, 4);
    std::vector<SampledToken> all(drawn.begin(), drawn.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    ASSERT_EQ(all.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(all[i].token, q.ids[i]);
}

/// q is cut by the target's rules: the same tokens with the probabilities of the reference distribution.
TEST(DraftDistribution, AppliesTargetsTopKAndTopP) {
    const std::vector<float> logits = {1.0f, 0.2f, -0.5f, 2.0f, 2.0f, 1.5f, -2.0f, 0.7f};
    const std::vector<TokenId> ids = {20, 3, 5, 9, 7, 11, 13, 17};
    for (const Sampling& sampling :
         {Sampling{1.0, 0.8, 0}, Sampling{0.6, 1.0, 3}, Sampling{1.3, 0.5, 5}, Sampling{0.9, 1e-9, 0},
          Sampling{1.0, 1.0, 1}, Sampling{1.0, 0.9999, 99}}) {
        const DraftSampling settings{sampling.temperature, 0, sampling.top_p, sampling.top_k};
        // The reference in id order, because ties go to the lower id.
        std::vector<std::size_t> by_id = {1, 2, 4, 3, 5, 6, 7, 0};
        std::vector<float> logits_by_id;
        for (const std::size_t i : by_id) logits_by_id.push_back(logits[i]);
        const std::vector<double> expected = distribution(logits_by_id, sampling);
        const DraftDistribution q = distribution_of(ids, logits, settings);
        for (std::size_t i = 0; i < by_id.size(); ++i)
            EXPECT_NEAR(static_cast<double>(q.probs[by_id[i]]), expected[i], 1e-6)
                << "T=" << sampling.temperature << " p=" << sampling.top_p << " k=" << sampling.top_k;
        // Every sample is a kept token.
        for (const SampledToken& one : sample_drafts(q, 8, settings, 1, 2))
            EXPECT_TRUE(std::isfinite(one.logprob));
    }
}

/// Samples the token after a root whose children were sampled from q, over many sequences. `pick_best` keeps
/// only the most likely sample. Selecting by value in this way biases the child, which then is no sample of
/// q.
ChiSquare first_token(const Sampling& sampling, int children, bool pick_best = false) {
    const std::vector<float> target = {1.0f, 0.2f, -0.5f, 2.0f, 0.0f, 1.5f, -2.0f, 0.7f};
    // Token 7 is outside the draft's support.
    const std::vector<float> draft = {0.1f, 1.8f, 0.0f, 1.0f, -3.0f, 2.0f, 0.5f};
    const DraftSampling drafts{sampling.temperature, sampling.seed, sampling.top_p, sampling.top_k};
    const auto exec = kernels::make_cpu_backend(1);
    const auto q = std::make_shared<DraftDistribution>(distribution_of({}, draft, drafts));
    std::vector<int> counts(target.size(), 0);
    const RulePtr rule = make_rule("pq").value();
    for (std::uint64_t sequence = 0; sequence < 8000; ++sequence) {
        std::vector<SampledToken> drawn = sample_drafts(*q, children, drafts, sequence, 5);
        if (pick_best) {
            std::sort(drawn.begin(), drawn.end(),
                      [](const SampledToken& a, const SampledToken& b) { return a.logprob > b.logprob; });
            drawn.resize(1);
        }
        DraftTree tree = DraftTree::with_root(0);
        for (const SampledToken& one : drawn) tree.add(one.token, 0, one.logprob);
        EXPECT_TRUE(tree.finish().ok());
        std::vector<std::shared_ptr<DraftDistribution>> drawn_from(tree.tokens.size());
        drawn_from[0] = q;
        std::vector<float> logits;
        for (int i = 0; i < tree.size(); ++i) logits.insert(logits.end(), target.begin(), target.end());
        const Rows<const float> rows(logits.data(), tree.size(), static_cast<int>(target.size()));
        const auto [choices, result] =
            verify_tree((*exec), *rule, tree, rows, rows.cols, sampling, {sequence, 5}, drawn_from);
        const TokenId token = result.path.size() > 1 ? tree.tokens[result.path[1]] : result.bonus;
        EXPECT_EQ(choices[0].token, token);
        ++counts[token];
    }
    return chi_square(distribution(target, sampling), counts);
}

TEST(AcceptPq, TokenAfterRootFollowsTargetDistribution) {
    for (const Sampling& sampling :
         {Sampling{1.0, 1.0, 0, 3}, Sampling{0.6, 1.0, 0, 4}, Sampling{1.0, 0.8, 0, 5},
          Sampling{1.3, 1.0, 3, 6}, Sampling{0.9, 0.9, 5, 7}})
        for (const int children : {1, 2, 7}) {
            const ChiSquare fit = first_token(sampling, children);
            EXPECT_FALSE(fit.rejects()) << children << " children, T=" << sampling.temperature << ": "
                                        << fit.statistic << " with " << fit.freedom;
        }
}

TEST(AcceptPq, SurvivesRowsWithoutAUsableLogit) {
    const auto exec = kernels::make_cpu_backend(1);
    const std::vector<float> logits(8, std::numeric_limits<float>::quiet_NaN());
    const Rows<const float> rows(logits.data(), 2, 4);
    DraftTree tree = DraftTree::with_root(0);
    tree.add(3, 0, -1.0f);
    ASSERT_TRUE(tree.finish().ok());
    const Sampling sampling{1.0, 1.0, 0, 3};
    const auto verified = verify_tree((*exec), *make_rule("pq").value(), tree, rows, 4, sampling, {1, 5});
    EXPECT_EQ(verified.acceptance.bonus, 0);
}

/// NaN never is the best token.
TEST(AcceptTypical, NanIsNeverTheBestToken) {
    const auto exec = kernels::make_cpu_backend(1);
    const std::vector<float> logits = {std::numeric_limits<float>::quiet_NaN(), 1.0f, 3.0f, 2.0f};
    const Rows<const float> rows(logits.data(), 1, 4);
    DraftTree tree = DraftTree::with_root(0);
    ASSERT_TRUE(tree.finish().ok());
    const Sampling sampling{1.0, 1.0, 0, 3};
    const auto verified =
        verify_tree((*exec), *make_rule("typical").value(), tree, rows, 4, sampling, {1, 5});
    EXPECT_EQ(verified.acceptance.bonus, 2);
}

TEST(AcceptPq, DraftsSelectedByValueBiasTheOutput) {
    EXPECT_TRUE(first_token({1.0, 1.0, 0, 3}, 2, true).rejects());
}

/// Everything a session needs, with all kinds of drafters.
class PqSession : public ::testing::Test, protected TinyDecode {
  protected:
    static TinyModelOptions options() {
        TinyModelOptions options = few_token_options();
        options.logit_scale = 1.5f;
        return options;
    }
    PqSession() : TinyDecode(options(), kernels::Precision::f32, few_tokens) {
        setting_.verify = "pq";
        setting_.temperature = 1.0;
        setting_.threads = 2;
        save_affinity();
    }

    /// Every token keeps half and gives the rest to its two neighbours.
    void save_affinity() {
        std::vector<std::int32_t> neighbours;
        std::vector<float> weights;
        for (int t = 0; t < vocab; ++t)
            for (const int step : {0, 1, vocab - 1}) {
                neighbours.push_back((t + step) % vocab);
                weights.push_back(step == 0 ? 0.5f : 0.25f);
            }
        ArtefactInfo info;
        info.head = "rdk";
        info.vocab = vocab;
        info.hidden = fixture_.target().config().hidden;
        const TensorToSave tensors[] = {
            {"neighbours", "I32", {vocab, 3}, std::as_bytes(std::span(neighbours))},
            {"weights", "F32", {vocab, 3}, std::as_bytes(std::span(weights))}};
        ASSERT_TRUE(save_artefact(folder_.file("rdk.safetensors"), info, tensors).ok());
        fixture_.use_artefact("rdk", folder_.file("rdk.safetensors"));
    }

    std::vector<float> logits_after(const std::vector<TokenId>& tokens) {
        KvCache cache = fixture_.target().make_cache(64);
        ForwardOutput out;
        EXPECT_TRUE(fixture_.target().prefill(cache, tokens, {}, out).ok());
        return out.logits;
    }
    /// Tokens two and three of one prompt over many sequences, against their probability under the target.
    ChiSquare two_tokens(int draws) {
        const std::vector<TokenId> prompt = {1, 2, 3, 1, 2};
        const Sampling sampling{setting_.temperature, setting_.top_p, setting_.top_k, setting_.seed};
        setting_.max_new = 3;
        setting_.batch = 64;
        const auto outcomes = fixture_.decode(
            setting_, std::vector<std::vector<TokenId>>(static_cast<std::size_t>(draws), prompt));
        std::vector<int> counts(vocab * vocab, 0);
        for (const PromptOutcome& outcome : outcomes) {
            accepted_ += outcome.accepted;
            ++counts[outcome.tokens[1] * vocab + outcome.tokens[2]];
        }
        std::vector<double> probabilities(vocab * vocab, 0.0);
        const auto first = distribution(logits_after(prompt), sampling);
        for (TokenId a = 0; a < vocab; ++a) {
            if (first[a] <= 0) continue;
            std::vector<TokenId> text = prompt;
            text.push_back(a);
            const auto second = distribution(logits_after(text), sampling);
            for (TokenId b = 0; b < vocab; ++b) {
                if (second[b] <= 0) continue;
                text.push_back(b);
                const auto third = distribution(logits_after(text), sampling);
                text.pop_back();
                for (TokenId c = 0; c < vocab; ++c)
                    probabilities[b * vocab + c] += first[a] * second[b] * third[c];
            }
        }
        return chi_square(probabilities, counts);
    }

    ScratchFolder folder_;
    DecodeCase setting_;
    std::int64_t accepted_ = 0;
};

struct PqCase {
    const char* drafter;
    const char* head;
    const char* tree;
    double temperature = 1.0, top_p = 1.0;
    int top_k = 0;
};

TEST_F(PqSession, TextsFollowTargetDistribution) {
    const PqCase cases[] = {
        {"eagle2", "full", "chain=3"},
        {"eagle2", "fr-spec:v=6", "chain=3"},
        {"eagle2", "full", "depth=2,topk=3,nodes=8"},
        {"eagle2", "fr-spec:v=4", "depth=2,topk=6,nodes=30", 0.7},
        {"eagle2", "fr-spec:v=4+rdk", "depth=2,topk=3,nodes=8", 0.7},
        {"eagle2", "fr-spec:v=6+rdk", "chain=2", 1.0, 0.9},
        {"eagle2", "microspec", "depth=2,topk=3,nodes=8"},
        {"eagle2", "full", "depth=2,topk=3,nodes=8,order=fr"},
        {"eagle2", "full", "choices:eagle_mc_sim_7b_63,levels=3"},
        {"medusa", "full", "choices:mc_sim_7b_63,levels=2"},
        {"eagle3", "full", "depth=2,topk=3,nodes=8", 1.0, 0.8},
        {"medusa", "full", "depth=2,topk=3,nodes=8", 1.0, 1.0, 5},
        {"hydra", "full", "chain=2", 0.8, 0.9, 6},
        {"ngram", "full", "chain=3"},
        // Certain and sampled drafts in one step.
        {"pair:ngram+eagle2", "full", "depth=2,topk=3,nodes=8"},
        {"pair:ngram+eagle2", "microspec", "chain=2", 0.7},
        {"pair:ngram+hydra", "full", "chain=2", 0.8, 0.9, 6},
    };
    for (const PqCase& one : cases) {
        setting_.drafter = one.drafter;
        setting_.head = one.head;
        setting_.tree = one.tree;
        setting_.temperature = one.temperature;
        setting_.top_p = one.top_p;
        setting_.top_k = one.top_k;
        accepted_ = 0;
        const ChiSquare fit = two_tokens(3000);
        EXPECT_FALSE(fit.rejects()) << to_text(setting_) << ": " << fit.statistic << " with " << fit.freedom;
        EXPECT_GT(accepted_, 200) << to_text(setting_);
    }
}

/// Ranks that the tree leaves out would be samples that are never verified.
TEST_F(PqSession, TreesMayLeaveOutRanks) {
    const std::string file = folder_.file("tree.json");
    std::ofstream(file) << "[[2],[5],[2,1],[2,4],[5,3]]";
    setting_.tree = "choices:" + file;
    const ChiSquare fit = two_tokens(6000);
    EXPECT_FALSE(fit.rejects()) << fit.statistic << " with " << fit.freedom;
    EXPECT_GT(accepted_, 200);
}

TEST_F(PqSession, TypicalAcceptanceIsLossy) {
    setting_.verify = "typical";
    setting_.tree = "depth=2,topk=3,nodes=8";
    EXPECT_TRUE(two_tokens(3000).rejects());
}

TEST_F(PqSession, AtTemperatureZeroEveryRuleIsExactMatch) {
    const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {4, 5, 6, 7, 8}, {9}};
    setting_.temperature = 0;
    setting_.verify = "match";
    const auto expected = fixture_.decode(setting_, prompts);
    for (const RuleInfo* rule : rule_registry()) {
        if (rule->is_simulated()) continue;
        setting_.verify = rule->id;
        const auto found = fixture_.decode(setting_, prompts);
        for (std::size_t p = 0; p < prompts.size(); ++p) {
            EXPECT_EQ(found[p].tokens, expected[p].tokens);
            EXPECT_EQ(found[p].rounds, expected[p].rounds);
        }
    }
}

TEST_F(PqSession, WithoutDraftsTextIsAutoregressive) {
    const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {9}};
    setting_.drafter = "none";
    const auto drawn = fixture_.decode(setting_, prompts);
    setting_.verify = "match";
    const auto expected = fixture_.decode(setting_, prompts);
    for (std::size_t p = 0; p < prompts.size(); ++p) EXPECT_EQ(drawn[p].tokens, expected[p].tokens);
}

TEST_F(PqSession, TextsDoNotDependOnTheBatch) {
    std::vector<std::vector<TokenId>> prompts;
    for (int p = 0; p < 7; ++p) prompts.emplace_back(static_cast<std::size_t>(1 + 3 * p), p);
    for (const RuleInfo* rule : rule_registry())
        for (const char* drafter : {"eagle2", "eagle3", "medusa", "hydra", "ngram"}) {
            if (rule->is_simulated()) continue;
            setting_.verify = rule->id;
            setting_.drafter = drafter;
            setting_.batch = 1;
            setting_.threads = 1;
            const auto alone = fixture_.decode(setting_, prompts);
            setting_.batch = 3;
            setting_.threads = 2;
            const auto together = fixture_.decode(setting_, prompts);
            for (std::size_t p = 0; p < prompts.size(); ++p)
                EXPECT_EQ(together[p].tokens, alone[p].tokens) << to_text(setting_);
        }
}

}  // namespace
}  // namespace draftscope::testing
