#include "base/rng.h"
#include "tests/gpu/device_pair.h"
#include "tests/support/tree_verifier.h"

namespace draftscope::testing {
namespace {

/// A tree, and the distributions that each node's children were sampled from: over some tokens or over all.
struct SampledTree {
    DraftTree tree;
    std::vector<std::shared_ptr<DraftDistribution>> drawn_from;  ///< empty = certain drafts
};

SampledTree random_tree(int vocab, int nodes, bool drawn, Rng& rng) {
    SampledTree out{DraftTree::with_root(static_cast<TokenId>(rng.below(static_cast<unsigned>(vocab)))), {}};
    DraftTree& tree = out.tree;
    for (int i = 1; i < nodes; ++i) {
        const auto parent = static_cast<int>(rng.below(std::min(tree.size(), 5)));
        const auto token = static_cast<TokenId>(rng.below(static_cast<unsigned>(std::min(vocab, 9))));
        bool exists = false;
        for (std::size_t j = 1; j < tree.tokens.size(); ++j)
            exists = exists || (tree.parents[j] == parent && tree.tokens[j] == token);
        if (!exists) tree.add(token, parent, -1.0f);
    }
    EXPECT_TRUE(tree.finish().ok());
    const bool whole = rng.below(2) == 0;
    for (int n = 0; drawn && n < tree.size(); ++n) {
        auto q = std::make_shared<DraftDistribution>();
        const bool few = !whole && rng.below(2) == 0;
        double sum = 0;
        for (int t = 0; t < vocab; ++t) {
            const bool wanted = t < 9 || rng.below(3) == 0;
            if (few && !wanted) continue;
            if (!whole) q->ids.push_back(t);
            q->probs.push_back(wanted ? static_cast<float>(std::exp(2 * rng.normal())) : 0.0f);
            sum += static_cast<double>(q->probs.back());
        }
        for (float& p : q->probs) p = static_cast<float>(static_cast<double>(p) / sum);
        out.drawn_from.push_back(std::move(q));
    }
    return out;
}

class ResidualOps : public DevicePair {};

/// Paths, bonus tokens and their probabilities equal those of the host, computed from whole rows. A uniform
/// within rounding of a decision's boundary may decide otherwise; such cases are counted and rare.
TEST_P(ResidualOps, PathsMatchTheHost) {
    const auto exec = kernels::make_cpu_backend(1);
    const RulePtr rule = make_rule("pq").value();
    Rng rng(11);
    int trees = 0, apart = 0, drafts = 0, rejected = 0;
    for (const int vocab : {9, 33, 1000, 49152})
        for (int turn = 0; turn < 24; ++turn) {
            if (too_large(std::int64_t{vocab} * 200)) continue;
            if (GetParam().starts_with("simt") && turn >= 9) continue;
            Sampling sampling;
            sampling.temperature = turn % 2 == 0 ? 1.0 : 0.6;
            sampling.top_k = turn % 3 == 0 ? 7 : 0;
            const SampledTree sampled = random_tree(vocab, 8, turn % 4 != 1, rng);
            const int rows = sampled.tree.size(), stride = vocab + 3;
            std::vector<float> values(rows * stride);
            // Likely and unlikely drafts, for paths of several lengths.
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = static_cast<float>(rng.normal()) * 2 + (i % stride < 9 ? 3.0f : 0.0f);
            const Rows<const float> logits(values.data(), rows, stride);
            const auto verify = [&](kernels::Backend& on) {
                return verify_tree(on, *rule, sampled.tree, logits, vocab, sampling, {5, 1000 + turn},
                                   sampled.drawn_from);
            };
            const VerifiedTree expected = verify((*exec));
            const VerifiedTree plain =
                verify_tree((*exec), *match_rule(), sampled.tree, logits, vocab, sampling, {5, 1000 + turn});
            for (const bool on_twin : {false, true}) {
                const VerifiedTree found = verify(on_twin ? twin() : device());
                const Acceptance& accepted = found.acceptance;
                ++trees;
                drafts += static_cast<int>(accepted.path.size()) - 1;
                rejected += accepted.bonus != plain.choices[accepted.path.back()].token;
                if (accepted.path != expected.acceptance.path ||
                    accepted.bonus != expected.acceptance.bonus) {
                    ++apart;
                    continue;
                }
                for (const int node : accepted.path) {
                    EXPECT_EQ(found.choices[node].token, expected.choices[node].token);
                    // Arguments of exp near 16 are rounded to 1e-6, before or after multiplying, and so are
                    // the norms.
                    const float prob = expected.choices[node].prob;
                    EXPECT_NEAR(found.choices[node].prob, prob, 8e-6f * prob);
                }
            }
        }
    EXPECT_GE(trees, 36);
    EXPECT_GT(drafts, trees / 4);
    EXPECT_GT(rejected, trees / 12);
    EXPECT_LE(apart, trees / 40);
}

INSTANTIATE_TEST_SUITE_P(Devices, ResidualOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
