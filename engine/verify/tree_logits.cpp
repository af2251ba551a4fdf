#include "engine/transformer/device_logits.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

float TreeLogits::draft_logit(int node) const {
    return answers.logits[first_row + node];
}

void TreeLogits::emit(int node, TokenId token, float logit) const {
    TargetSample& choice = choices[node];
    choice.token = token;
    choice.prob = target_probability(choice, sampling, logit);
}

void TreeLogits::emit_drafts(const DraftTree& tree, std::span<const int> path) const {
    for (std::size_t i = 1; i < path.size(); ++i)
        emit(path[i - 1], tree.tokens[path[i]], draft_logit(path[i]));
}

void AcceptanceRule::accept(const DraftTree& tree, const TreeLogits& logits, std::span<const int> path,
                            Acceptance& out) const {
    out.path.assign(path.begin(), path.end());
    emit(tree, logits, path);
    out.bonus = logits.choices[path.back()].token;
}

std::vector<int> follow_path(const DraftTree& tree, std::span<const TokenId> text) {
    std::vector<int> path = {0};
    // Children follow their parent, so one pass over the nodes finds the path.
    for (int i = 1; i < tree.size() && path.size() <= text.size(); ++i)
        if (tree.parents[i] == path.back() && tree.tokens[i] == text[path.size() - 1]) path.push_back(i);
    return path;
}

}  // namespace draftscope
