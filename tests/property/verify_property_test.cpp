#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "tests/support/tree_verifier.h"

namespace draftscope {
namespace {

/// A random tree with distinct siblings over few tokens, so that matches are frequent.
DraftTree random_tree(Rng& rng, int nodes, int tokens) {
    DraftTree tree = DraftTree::with_root(0);
    for (int tries = 0; tree.size() < nodes && tries < 20 * nodes; ++tries) {
        const int parent = static_cast<int>(rng.below(static_cast<std::uint32_t>(tree.size())));
        const auto token = static_cast<TokenId>(rng.below(static_cast<std::uint32_t>(tokens)));
        bool taken = false;
        for (std::size_t i = 1; i < tree.tokens.size(); ++i)
            taken = taken || (tree.parents[i] == parent && tree.tokens[i] == token);
        if (!taken) tree.add(token, parent, -1.0f);
    }
    return tree;
}

RC_GTEST_PROP(AcceptProperty, PathIsLongestMatchOfTargetTokens, ()) {
    Rng rng(*rc::gen::arbitrary<std::uint64_t>());
    const int tokens = *rc::gen::inRange(1, 5);
    const DraftTree tree = random_tree(rng, *rc::gen::inRange(1, 40), tokens);
    std::vector<TargetSample> choices(tree.tokens.size());
    for (auto& choice : choices)
        choice.token = static_cast<TokenId>(rng.below(static_cast<std::uint32_t>(tokens)));
    const Acceptance found = testing::follow_choices(tree, choices);

    // Every node whose ancestors all match is on the path, and the path starts at the root.
    std::vector<bool> correct(tree.tokens.size(), false);
    correct[0] = true;
    int deepest = 0;
    for (std::size_t i = 1; i < tree.tokens.size(); ++i) {
        const auto parent = static_cast<std::size_t>(tree.parents[i]);
        correct[i] = correct[parent] && choices[parent].token == tree.tokens[i];
        if (correct[i]) deepest = std::max(deepest, tree.depths[i]);
    }
    RC_ASSERT(found.path.front() == 0);
    RC_ASSERT(static_cast<int>(found.path.size()) == deepest + 1);
    for (std::size_t i = 0; i < found.path.size(); ++i) {
        RC_ASSERT(correct[found.path[i]]);
        if (i > 0) RC_ASSERT(tree.parents[found.path[i]] == found.path[i - 1]);
    }
    RC_ASSERT(found.bonus == choices[found.path.back()].token);
}

RC_GTEST_PROP(SampleProperty, SampledTokenIsInverseCdfInIdOrder, ()) {
    Rng rng(*rc::gen::arbitrary<std::uint64_t>());
    const int vocab = *rc::gen::inRange(1, 1500), padding = *rc::gen::inRange(0, 9);
    Sampling sampling{.temperature = *rc::gen::element(0.3, 0.8, 1.0, 2.0),
                      .top_p = *rc::gen::element(1.0, 0.9, 0.3),
                      .top_k = *rc::gen::element(0, 1, 7, 5000),
                      .seed = *rc::gen::arbitrary<std::uint64_t>()};
    // Few distinct logits, so that the cuts hit ties.
    std::vector<float> row(static_cast<std::size_t>(vocab + padding), 100.0f);
    for (int i = 0; i < vocab; ++i) row[i] = static_cast<float>(rng.below(6));
    const std::int64_t position = *rc::gen::inRange(0, 100000);
    const auto exec = kernels::make_cpu_backend(1);
    std::vector<TargetSample> out;
    sample_tokens(*exec, Rows<const float>(row.data(), 1, vocab + padding), vocab, sampling,
                  std::vector<TokenPosition>{{2, position}}, out);

    std::vector<int> kept(static_cast<std::size_t>(vocab));
    for (int i = 0; i < vocab; ++i) kept[i] = i;
    const auto logit = [&](int id) { return row[id]; };
    const auto weight = [&](int id) {
        return std::exp(static_cast<double>(logit(id)) / sampling.temperature);
    };
    std::sort(kept.begin(), kept.end(),
              [&](int a, int b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
    if (sampling.top_k > 0) kept.resize(std::min(kept.size(), static_cast<std::size_t>(sampling.top_k)));
    double mass = 0, seen = 0;
    for (const int id : kept) mass += weight(id);
    if (sampling.top_p < 1) {
        std::size_t count = 0;
        while (count < kept.size() && seen < sampling.top_p * mass) seen += weight(kept[count++]);
        kept.resize(count);
    }
    std::sort(kept.begin(), kept.end());
    mass = 0;
    for (const int id : kept) mass += weight(id);
    const double target = token_uniform(sampling.seed, 2, static_cast<std::uint64_t>(position)) * mass;

    RC_ASSERT(std::find(kept.begin(), kept.end(), out[0].token) != kept.end());
    double before = 0;
    for (const int id : kept)
        if (id < out[0].token) before += weight(id);
    // Single-precision weights may move a boundary by this much.
    RC_ASSERT(before <= target + 1e-5 * mass);
    RC_ASSERT(before + weight(out[0].token) >= target - 1e-5 * mass);
    RC_ASSERT(std::abs(out[0].prob - weight(out[0].token) / mass) < 1e-5);
    RC_ASSERT(std::abs(target_probability(out[0], sampling, logit(out[0].token)) - out[0].prob) < 1e-4);
}

}  // namespace
}  // namespace draftscope
