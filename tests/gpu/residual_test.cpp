#include "base/rng.h"
#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"
#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

/// A tree whose children were sampled from a distribution of their parent: over some tokens, over all tokens,
/// or with certainty.
DraftTree random_tree(int vocab, int nodes, bool drawn, Rng& rng) {
    DraftTree tree = DraftTree::with_root(static_cast<TokenId>(rng.below(static_cast<unsigned>(vocab))));
    for (int i = 1; i < nodes; ++i) {
        const auto parent = static_cast<int>(rng.below(std::min(tree.size(), 5)));
        const auto token = static_cast<TokenId>(rng.below(static_cast<unsigned>(std::min(vocab, 9))));
        bool exists = false;
        for (std::size_t j = 1; j < tree.tokens.size(); ++j)
            exists = exists || (tree.parents[j] == parent && tree.tokens[j] == token);
        if (!exists) tree.add(token, parent, -1.0f);
    }
    EXPECT_TRUE(tree.finish().ok());
    if (!drawn) return tree;
    tree.child_distributions.resize(tree.tokens.size());
    for (std::size_t n = 0; n < tree.tokens.size(); ++n) {
        auto q = std::make_shared<DraftDistribution>();
        const bool few = rng.below(2) == 0;
        double sum = 0;
        for (int t = 0; t < vocab; ++t) {
            const bool wanted = t < 9 || rng.below(3) == 0;
            if (few && !wanted) continue;
            if (few) q->ids.push_back(t);
            q->probs.push_back(wanted ? static_cast<float>(std::exp(2 * rng.normal())) : 0.0f);
            sum += static_cast<double>(q->probs.back());
        }
        for (float& p : q->probs) p = static_cast<float>(static_cast<double>(p) / sum);
        tree.child_distributions[n] = std::move(q);
    }
    return tree;
}

/// Nodes of a tree with children, and the q that these were sampled from.
struct ResidualInputs {
    std::vector<kernels::RejectionNode> nodes;
    std::vector<std::int32_t> drafts;
    std::vector<double> uniforms;  ///< for each draft
    std::vector<std::int32_t> ids;
    std::vector<float> probs;
    std::vector<int> node_of;  ///< of each row, -1 = no children
};

/// Adds the tokens that q can propose, or all of q if that is shorter.
void add_distribution(const DraftDistribution* q, kernels::RejectionNode& node, ResidualInputs& inputs) {
    node.first_prob = static_cast<std::int64_t>(inputs.probs.size());
    if (q == nullptr) {
        inputs.probs.push_back(0.0f);
        return;
    }
    const std::size_t some = std::count_if(q->probs.begin(), q->probs.end(), [](float p) { return p > 0; });
    if (q->ids.empty() && 2 * some > q->probs.size()) {
        node.first_id = -1;
        node.support = static_cast<std::int32_t>(q->probs.size());
        inputs.probs.insert(inputs.probs.end(), q->probs.begin(), q->probs.end());
        return;
    }
    node.first_id = static_cast<std::int64_t>(inputs.ids.size());
    node.support = static_cast<std::int32_t>(some);
    for (std::size_t i = 0; i < q->probs.size(); ++i) {
        if (!(q->probs[i] > 0)) continue;
        inputs.ids.push_back(q->id_at(i));
        inputs.probs.push_back(q->probs[i]);
    }
}

ResidualInputs residual_inputs(const DraftTree& tree, std::uint64_t seed, const TokenPosition& place) {
    ResidualInputs inputs;
    for (std::size_t n = 0; n < tree.tokens.size(); ++n) {
        const std::int64_t position = place.position + tree.depths[n];
        kernels::RejectionNode node;
        node.row = static_cast<int>(n);
        node.first_draft = static_cast<std::int32_t>(inputs.drafts.size());
        for (std::size_t i = n + 1; i < tree.tokens.size(); ++i) {
            if (tree.parents[i] != static_cast<int>(n)) continue;
            inputs.drafts.push_back(tree.tokens[i]);
            inputs.uniforms.push_back(accept_uniform(seed, place.sequence, position, node.drafts++));
        }
        inputs.node_of.push_back(node.drafts == 0 ? -1 : static_cast<int>(inputs.nodes.size()));
        if (node.drafts == 0) continue;
        node.uniform = token_uniform(seed, place.sequence, static_cast<std::uint64_t>(position));
        add_distribution(tree.child_distributions.empty() ? nullptr : tree.child_distributions[n].get(), node,
                         inputs);
        inputs.nodes.push_back(node);
    }
    return inputs;
}

class ResidualOps : public DevicePair {
  protected:
    /// Runs the op on a tree's rows and passes its results to the rule.
    Acceptance verdict_inputs(kernels::Device& on, const DraftTree& tree, const std::vector<float>& values,
                              int stride, int vocab, const Sampling& sampling, const TokenPosition& place,
                              std::vector<TargetSample>& choices) {
        const int rows = tree.size();
        ResidualInputs inputs = residual_inputs(tree, sampling.seed, place);
        const int count = static_cast<int>(inputs.nodes.size());
        std::vector<float> norms, lowest;
        LogitsResult answers;
        for (int n = 0; n < rows; ++n) {
            norms.push_back(choices[n].log_norm);
            lowest.push_back(choices[n].min_logit);
            answers.logits.push_back(values[std::max(tree.parents[n], 0) * stride + tree.tokens[n]]);
        }
        inputs.ids.push_back(0);  // the list may be empty
        const auto put = [&]<typename T>(const std::vector<T>& from, std::size_t room = 0) {
            kernels::DeviceBuffer buffer;
            EXPECT_TRUE(buffer.reserve(on, std::max(from.size(), room) * sizeof(T)));
            on.upload(buffer.as<T>(), from.data(), from.size() * sizeof(T));
            return buffer;
        };
        const auto logits = put(values), d_norms = put(norms), d_min_logit = put(lowest),
                   nodes = put(inputs.nodes), drafts = put(inputs.drafts), uniforms = put(inputs.uniforms),
                   ids = put(inputs.ids), probs = put(inputs.probs), saved = put(inputs.probs),
                   weights = put(std::vector<float>(count * vocab, -7.0f)),
                   out = put(std::vector<std::int32_t>(3 * count, -7));
        kernels::RejectionSampleOp op;
        op.logits = logits.as<float>();
        op.stride = stride;
        op.vocab = vocab;
        op.count = count;
        op.inv_temperature = inverse_temperature(sampling);
        op.log_norm = d_norms.as<float>();
        op.min_logit = sampling.top_k > 0 ? d_min_logit.as<float>() : nullptr;
        op.nodes = nodes.as<kernels::RejectionNode>();
        op.drafts = drafts.as<std::int32_t>();
        op.uniforms = uniforms.as<double>();
        op.ids = ids.as<std::int32_t>();
        op.probs = probs.as<float>();
        op.saved = saved.as<float>();
        op.weights = weights.as<float>();
        op.accepted = out.as<std::int32_t>();
        op.bonus = op.accepted + count;
        op.bonus_logits = out.as<float>() + 2 * count;
        on.rejection_sample(op);
        answers.accepted.resize(count);
        answers.bonus.resize(count);
        answers.bonus_logits.resize(count);
        on.download(answers.accepted.data(), op.accepted, count * sizeof(std::int32_t));
        on.download(answers.bonus.data(), op.bonus, count * sizeof(std::int32_t));
        on.download(answers.bonus_logits.data(), op.bonus_logits, count * sizeof(float));
        EXPECT_TRUE(on.synchronize().ok());
        const auto exec = kernels::make_cpu_exec(1);
        TreeLogits tree_logits{*exec, sampling, place, choices};
        tree_logits.answers = &answers;
        tree_logits.rejection_nodes = inputs.node_of;
        AcceptScratch scratch;
        Acceptance accepted;
        make_rule("pq").value()->accept(tree, tree_logits, scratch, accepted);
        return accepted;
    }
};

/// Paths, bonus tokens and their probabilities equal those of the host, computed from whole rows. A uniform
/// within rounding of a decision's boundary may decide otherwise; such cases are counted and rare.
TEST_P(ResidualOps, PathsMatchTheHost) {
    const auto exec = kernels::make_cpu_exec(1);
    Rng rng(11);
    int trees = 0, apart = 0, drafts = 0, rejected = 0;
    AcceptScratch scratch;
    for (const int vocab : {9, 33, 1000, 49152})
        for (int turn = 0; turn < 24; ++turn) {
            if (too_large(std::int64_t{vocab} * 200)) continue;
            if (GetParam().starts_with("simt") && turn >= 9) continue;
            Sampling sampling;
            sampling.temperature = turn % 2 == 0 ? 1.0 : 0.6;
            sampling.top_k = turn % 3 == 0 ? 7 : 0;
            const DraftTree tree = random_tree(vocab, 8, turn % 4 != 1, rng);
            const int rows = tree.size(), stride = vocab + 3;
            std::vector<float> values(rows * stride);
            // Likely and unlikely drafts, for paths of several lengths.
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = static_cast<float>(rng.normal()) * 2 + (i % stride < 9 ? 3.0f : 0.0f);
            const TokenPosition place{5, 1000 + turn};
            std::vector<TokenPosition> places;
            for (const int depth : tree.depths) places.push_back({place.sequence, place.position + depth});
            const Rows<const float> logits(values.data(), rows, stride);
            std::vector<TargetSample> expected_choices;
            sample_tokens(*exec, logits, vocab, sampling, places, expected_choices);
            const auto drawn = expected_choices;
            const Rows<const float> real(values.data(), rows, vocab, stride);
            Acceptance expected;
            make_rule("pq").value()->accept(tree, {*exec, sampling, place, expected_choices, real}, scratch,
                                            expected);
            for (const bool on_twin : {false, true}) {
                auto choices = drawn;
                const Acceptance found = verdict_inputs(on_twin ? twin() : device(), tree, values, stride,
                                                        vocab, sampling, place, choices);
                ++trees;
                drafts += static_cast<int>(found.path.size()) - 1;
                rejected += found.bonus != drawn[found.path.back()].token;
                if (found.path != expected.path || found.bonus != expected.bonus) {
                    ++apart;
                    continue;
                }
                for (const int node : found.path) {
                    EXPECT_EQ(choices[node].token, expected_choices[node].token);
                    // An argument of exp near 16 is rounded to 1e-6, before or after multiplying.
                    const float prob = expected_choices[node].prob;
                    EXPECT_NEAR(choices[node].prob, prob, 4e-6f * prob);
                }
            }
        }
    EXPECT_GE(trees, 36);
    EXPECT_GT(drafts, trees / 4);
    EXPECT_GT(rejected, trees / 8);
    EXPECT_LE(apart, trees / 40);
}

INSTANTIATE_TEST_SUITE_P(Devices, ResidualOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
