#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

float TreeLogits::draft_logit(const DraftTree& tree, int node) const {
    if (answers != nullptr) return answers->logits[first_row + node];
    return rows.row_data(tree.parents[node])[tree.tokens[node]];
}

void TreeLogits::emit(int node, TokenId token, float logit) const {
    TargetSample& choice = choices[node];
    choice.token = token;
    choice.prob = target_probability(choice, sampling, logit);
}

void TreeLogits::emit_drafts(const DraftTree& tree, std::span<const int> path) const {
    for (std::size_t i = 1; i < path.size(); ++i)
        emit(path[i - 1], tree.tokens[path[i]], draft_logit(tree, path[i]));
}

}  // namespace draftscope
