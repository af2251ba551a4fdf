#include "engine/verify/acceptance_rule.h"

namespace draftscope {

float TreeLogits::draft_logit(int node) const {
    return results.logits[first_row + node];
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

void AcceptanceRule::follow(VerifyContext& context, const std::int32_t* choices, std::int64_t stride) {
    const RoundLayout& layout = context.step.layout;
    const auto ops = context.step.memory.host.list<kernels::FollowArgmaxOp>(layout.trees().size());
    for (int tree_index = 0; tree_index < static_cast<int>(ops.size()); ++tree_index) {
        kernels::FollowArgmaxOp& op = ops[tree_index];
        op.rows = layout.arrays();
        op.first_row = layout.trees()[tree_index].first_row;
        op.nodes = layout.trees()[tree_index].nodes;
        op.choices = choices;
        op.choice_stride = stride;
        op.max_count = layout.plan().trees[tree_index].max_path;
        op.path = layout.path(tree_index);
        op.count = layout.path_count(tree_index);
    }
    context.backend.follow_argmax(ops);
}

void AcceptanceRule::enqueue(VerifyContext& context) const {
    follow(context, context.logits.choices(), context.logits.choice_stride());
}

}  // namespace draftscope
