#include "engine/verify/residuals.h"

#include <algorithm>

#include "base/rng.h"

namespace draftscope {
namespace {

/// Tokens of any probability, or all of q where that is shorter.
void add_drawn_from(const DraftDistribution* q, kernels::RejectionNode& node, ResidualQuestion& question) {
    node.first_prob = static_cast<std::int64_t>(question.probs.size());
    if (q == nullptr) {
        question.probs.push_back(0.0f);
        return;
    }
    const std::size_t some = std::count_if(q->probs.begin(), q->probs.end(), [](float p) { return p > 0; });
    if (q->ids.empty() && 2 * some > q->probs.size()) {
        node.first_id = -1;
        node.support = static_cast<std::int32_t>(q->probs.size());
        question.probs.insert(question.probs.end(), q->probs.begin(), q->probs.end());
        return;
    }
    node.first_id = static_cast<std::int64_t>(question.ids.size());
    node.support = static_cast<std::int32_t>(some);
    for (std::size_t i = 0; i < q->probs.size(); ++i) {
        if (!(q->probs[i] > 0)) continue;
        question.ids.push_back(q->id_at(i));
        question.probs.push_back(q->probs[i]);
    }
}

}  // namespace

void add_residuals(const DraftTree& tree, int first_row, std::uint64_t seed, const TokenPosition& place,
                   ResidualQuestion& question, std::vector<int>& node_of) {
    for (std::size_t n = 0; n < tree.tokens.size(); ++n) {
        const std::int64_t position = place.position + tree.depths[n];
        kernels::RejectionNode node;
        node.row = first_row + static_cast<int>(n);
        node.first_draft = static_cast<std::int32_t>(question.drafts.size());
        for (std::size_t i = n + 1; i < tree.tokens.size(); ++i) {
            if (tree.parents[i] != static_cast<int>(n)) continue;
            question.drafts.push_back(tree.tokens[i]);
            question.uniforms.push_back(accept_uniform(seed, place.sequence, position, node.drafts++));
        }
        node_of.push_back(node.drafts == 0 ? -1 : static_cast<int>(question.nodes.size()));
        if (node.drafts == 0) continue;
        node.uniform = token_uniform(seed, place.sequence, static_cast<std::uint64_t>(position));
        add_drawn_from(tree.child_distributions.empty() ? nullptr : tree.child_distributions[n].get(), node,
                       question);
        question.nodes.push_back(node);
    }
}

}  // namespace draftscope
