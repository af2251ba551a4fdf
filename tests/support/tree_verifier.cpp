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

    DrawnFrom upload(kernels::Backend& backend, int vocab,
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
    TreePlan plan{tree.size(), tree.max_depth()};
    if (rule.needs().rejections) plan.max_drafts = std::max(1, max_children(tree));
    add_acceptance_inputs(rule, sampling, place, plan);
    LogitsQuery query = make_query(rule, sampling, vocab);
    query.complete = true;
    TreeStep step;
    DeviceLogits answers;
    Distributions distributions;
    const Status done = backend.submit([&]() -> Status {
        EXPECT_TRUE(step.place(backend, {&plan, 1}));
        step.upload_tree(0, tree, 0);
        if (!drawn_from.empty()) step.use_drafts(distributions.upload(backend, vocab, drawn_from));
        const bool certain = drawn_from.empty() && plan.max_drafts > 0;
        EXPECT_TRUE(!certain || step.use_certain_drafts());
        EXPECT_TRUE(answers.begin(backend, logits.cols, query, step));
        for (int r = 0; r < logits.rows; ++r)
            backend.upload(answers.data() + row_offset(r, logits.cols), logits.row_data(r),
                           logits.cols * sizeof(float));
        EXPECT_TRUE(answers.enqueue_answers(step));
        step.enqueue_download();
        return {};
    });
    EXPECT_TRUE(is_ok(done));
    LogitsResult result;
    answers.collect(result);
    VerifiedTree out;
    read_choices(result, sampling, out.choices);
    rule.accept(tree, {sampling, out.choices, result}, step.path(0), out.acceptance);
    return out;
}

Acceptance follow_choices(const DraftTree& drafted, std::vector<TargetSample>& choices) {
    DraftTree tree = drafted;
    EXPECT_TRUE(tree.finish().ok());
    const auto exec = kernels::make_cpu_backend(1);
    kernels::Backend& backend = (*exec);
    const TreePlan plan{tree.size(), tree.max_depth()};
    std::vector<std::int32_t> tokens;
    for (const TargetSample& choice : choices) tokens.push_back(choice.token);
    TreeStep step;
    EXPECT_TRUE(step.place(backend, {&plan, 1}));
    step.upload_tree(0, tree, 0);
    step.accept_by_choices(tokens.data(), 1);
    step.enqueue_download();
    Acceptance out;
    const Sampling greedy;
    const LogitsResult result;
    match_rule()->accept(tree, {greedy, choices, result}, step.path(0), out);
    return out;
}

}  // namespace draftscope::testing
