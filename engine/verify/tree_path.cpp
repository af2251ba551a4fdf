#include "engine/verify/tree_path.h"

#include <algorithm>

namespace draftscope {

void path_to(const DraftTree& tree, int node, std::vector<int>& path) {
    path.clear();
    for (int at = node; at >= 0; at = tree.parents[at]) path.push_back(at);
    std::reverse(path.begin(), path.end());
}

void emit(const TreeLogits& rows, int node, TokenId token, TargetSample& choice) {
    choice.token = token;
    choice.prob = target_probability(choice, rows.sampling, rows.logits.row_data(node)[token]);
}

void emit_best(const TreeLogits& rows, int node, TargetSample& choice) {
    const std::span<const float> row = rows.logits.row(node);
    // Returns the first of equal values; NaN counts as the lowest.
    const auto less = [](float a, float b) { return b == b && !(a >= b); };
    const auto best = std::max_element(row.begin(), row.end(), less);
    emit(rows, node, static_cast<TokenId>(best - row.begin()), choice);
}

void emit_path(const DraftTree& tree, const TreeLogits& rows, const Acceptance& acceptance,
               std::span<TargetSample> choices) {
    for (std::size_t i = 0; i < acceptance.path.size(); ++i) {
        const int node = acceptance.path[i];
        const TokenId next =
            i + 1 < acceptance.path.size() ? tree.tokens[acceptance.path[i + 1]] : acceptance.bonus;
        emit(rows, node, next, choices[node]);
    }
}

void emit(const TreeVerdictInputs& verdict, TokenId token, float logit, TargetSample& choice) {
    choice.token = token;
    choice.prob = target_probability(choice, verdict.sampling, logit);
}

void emit_drafts(const DraftTree& tree, const TreeVerdictInputs& verdict, std::span<const int> path,
                 std::span<TargetSample> choices) {
    for (std::size_t i = 1; i < path.size(); ++i) {
        const auto node = static_cast<std::size_t>(path[i]);
        emit(verdict, tree.tokens[node], verdict.draft_logits[node], choices[path[i - 1]]);
    }
}

}  // namespace draftscope
