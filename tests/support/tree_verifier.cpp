#include "tests/support/tree_verifier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/numel.h"
#include "tests/support/results.h"

namespace draftscope::testing {
namespace {

int max_children(const DraftTree& tree) {
    int found = 0;
    for (int n = 0; n < tree.size(); ++n)
        found = std::max(found, static_cast<int>(std::ranges::count(tree.parents, n)));
    return found;
}

/// Rows of draft distributions in a backend's memory.
struct Distributions {
    kernels::DeviceArray<float> probs;
    kernels::DeviceArray<std::int32_t> ids, sizes;

    DraftProbs upload(kernels::Backend& backend, int vocab,
                      std::span<const std::shared_ptr<DraftDistribution>> rows) {
        const std::size_t count = rows.size(), width = vocab;
        std::vector<float> all(2 * count * width);
        std::vector<std::int32_t> tokens(count * width), lengths(count);
        for (std::size_t r = 0; r < count; ++r) {
            if (rows[r] == nullptr) continue;
            const DraftDistribution& q = *rows[r];
            for (std::size_t i = 0; i < q.probs.size(); ++i) {
                all[r * width + i] = q.probs[i];
                tokens[r * width + i] = q.id_at(i);
            }
            lengths[r] = static_cast<std::int32_t>(q.probs.size());
        }
        EXPECT_TRUE(probs.upload(backend, all) && ids.upload(backend, tokens) &&
                    sizes.upload(backend, lengths));
        const bool whole =
            std::ranges::all_of(rows, [](const auto& q) { return q == nullptr || q->ids.empty(); });
        if (whole) return {probs.data(), probs.data() + count * width, vocab, vocab, nullptr, nullptr};
        return {probs.data(), probs.data() + count * width, vocab, vocab, ids.data(), sizes.data()};
    }
};

}  // namespace

VerifiedTree verify_tree(kernels::Backend& backend, const AcceptanceRule& rule, const DraftTree& drafted,
                         Rows<const float> logits, int vocab, const Sampling& sampling,
                         const TokenPosition& place,
                         std::span<const std::shared_ptr<DraftDistribution>> drawn_from) {
    DraftTree tree = drafted;
    EXPECT_TRUE(tree.finish().ok());
    RoundStep step;
    step.plan.add({tree.size(), tree.max_depth(), 1});
    if (rule.needs().draft_uniforms) step.plan.max_drafts = std::max(1, max_children(tree));
    add_acceptance_inputs(rule, sampling, {&place, 1}, step.plan);
    LogitsQuery query = make_query(rule, sampling, vocab);
    query.complete = true;
    TargetLogits answers;
    Distributions distributions;
    std::vector<std::int32_t> sampled_rows;  // -1: the node's drafts are certain
    for (std::size_t r = 0; r < drawn_from.size(); ++r)
        sampled_rows.push_back(drawn_from[r] == nullptr ? -1 : static_cast<std::int32_t>(r));
    std::size_t by_rule = 0, by_rule_count = 0;
    const Status done = backend.submit([&]() -> Status {
        DS_TRY(step.begin(backend, "the tree"));
        EXPECT_TRUE(answers.begin(backend, step, query, logits.cols));
        step.layout.upload_tree(step.memory, 0, tree, 0);
        if (!drawn_from.empty()) {
            step.layout.draft_probs = distributions.upload(backend, vocab, drawn_from);
            backend.upload(step.layout.arrays().sampled_rows, sampled_rows.data(),
                           sampled_rows.size() * sizeof(sampled_rows[0]));
        }
        for (int r = 0; r < logits.rows; ++r)
            backend.upload(answers.data() + numel(r, logits.cols), logits.row_data(r),
                           logits.cols * sizeof(float));
        answers.enqueue(step);
        VerifyContext context{backend, step, answers};
        rule.enqueue(context);
        by_rule_count = context.requested_count;
        if (by_rule_count > 0) by_rule = step.results.request(context.requested, by_rule_count);
        answers.request(step);
        step.results.enqueue(backend);
        return step.check_memory("the tree");
    });
    EXPECT_TRUE(is_ok(done));
    LogitsResult result;
    answers.collect(step, result);
    const std::span<const std::int32_t> values = step.results.values(by_rule, by_rule_count);
    result.by_rule.assign(values.begin(), values.end());
    VerifiedTree out;
    read_choices(result, sampling, out.choices);
    rule.accept(tree, {sampling, out.choices, result}, step.results.path(0), out.acceptance);
    return out;
}

Acceptance follow_choices(const DraftTree& drafted, std::vector<TargetSample>& choices) {
    DraftTree tree = drafted;
    EXPECT_TRUE(tree.finish().ok());
    int vocab = 1;
    for (const TargetSample& choice : choices) vocab = std::max(vocab, choice.token + 1);
    for (const TokenId token : tree.tokens) vocab = std::max(vocab, token + 1);
    std::vector<float> logits(numel(tree.size(), vocab));
    for (int node = 0; node < tree.size(); ++node) logits[numel(node, vocab) + choices[node].token] = 1.0f;
    const auto backend = kernels::make_cpu_backend(1);
    VerifiedTree found =
        verify_tree(*backend, *match_rule(), tree, {logits.data(), tree.size(), vocab}, vocab, {}, {});
    return found.acceptance;
}

}  // namespace draftscope::testing
