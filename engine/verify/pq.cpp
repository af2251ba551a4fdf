#include <algorithm>
#include <bit>
#include <memory>

#include "base/numel.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

extern const RuleInfo pq_info;

namespace {

/// Rejection sampling (Leviathan et al. 2023) in its form for trees sampled without replacement (EAGLE-1).
/// Tries a node's children in sampling order and accepts each with probability min(1, p/q). A rejection sets
/// p := norm(max(0, p - q)) and removes the draft from q. The bonus is sampled from the residual of p.
/// Without sampled drafts, q = 1. Requires temperature > 0.
class PqRule final : public AcceptanceRule {
  public:
    PqRule() : AcceptanceRule(pq_info) {}

    RuleNeeds needs() const override {
        return {.sampled_drafts = true, .draft_uniforms = true, .draft_logits = true};
    }
    void enqueue(VerifyContext& context) const override;

  protected:
    void emit(const DraftTree& tree, const TreeLogits& logits, std::span<const int> path) const override {
        const std::size_t row = logits.first_row + path.back();
        const std::vector<std::int32_t>& bonuses = logits.results.by_rule;  // tokens, then their logits
        const TokenId bonus = bonuses[row];
        if (bonus != no_token)
            logits.emit(path.back(), bonus, std::bit_cast<float>(bonuses[bonuses.size() / 2 + row]));
        logits.emit_drafts(tree, path);
    }
};

void PqRule::enqueue(VerifyContext& context) const {
    const TargetLogits& logits = context.logits;
    RoundStep& step = context.step;
    const RoundLayout& layout = step.layout;
    RoundArena& arena = step.memory.backend;
    const int rows = layout.rows(), max_drafts = step.plan.max_drafts;
    const std::size_t drafts = numel(rows, max_drafts), node_bytes = logits.query().vocab * sizeof(float);
    const std::size_t max_weights = context.backend.limits().rejection_bytes / node_bytes;
    const int max_nodes = static_cast<int>(std::min<std::size_t>(max_weights, rows));
    const DraftProbs& from = layout.draft_probs;
    kernels::RejectionSampleOp op;
    auto* nodes = arena.alloc<kernels::RejectionNode>(rows);
    auto* tokens = arena.alloc<std::int32_t>(drafts);
    auto* uniforms = arena.alloc<double>(drafts);
    auto* children = arena.alloc<std::int32_t>(drafts);
    op.logits = logits.data();
    op.stride = logits.columns();
    op.vocab = logits.query().vocab;
    op.count = rows;
    op.inv_temperature = logits.inverse_temperature();
    op.log_norm = logits.log_norm();
    op.min_logit = logits.min_logit();
    op.nodes = nodes;
    op.drafts = tokens;
    op.uniforms = uniforms;
    op.ids = from.ids;
    op.probs = from.probs;
    op.saved = from.scratch;
    op.weights = arena.alloc<float>(numel(max_nodes, op.vocab));
    op.accepted = arena.alloc<std::int32_t>(rows);
    op.bonus = arena.alloc<std::int32_t>(numel(2, rows));
    op.bonus_logits = reinterpret_cast<float*>(op.bonus + rows);
    const auto lists = step.memory.host.list<kernels::ListChildrenOp>(layout.trees().size());
    const auto paths = step.memory.host.list<kernels::FollowAcceptedOp>(layout.trees().size());
    if (!step.memory.enough()) return;
    for (int tree_index = 0; tree_index < static_cast<int>(lists.size()); ++tree_index) {
        kernels::ListChildrenOp& list = lists[tree_index];
        list.rows = layout.arrays();
        list.first_row = layout.trees()[tree_index].first_row;
        list.nodes = layout.trees()[tree_index].nodes;
        list.max_count = max_drafts;
        list.uniforms = layout.draft_uniforms(tree_index);
        list.stride = from.stride;
        list.support = from.support;
        list.first_id = from.ids == nullptr ? -1 : 0;
        list.sizes = from.sizes;
        if (from.sizes != nullptr) list.id_stride = from.stride;
        list.out = nodes;
        list.drafts = tokens;
        list.draft_uniforms = uniforms;
        list.children = children;
        kernels::FollowAcceptedOp& path = paths[tree_index];
        path.first_row = list.first_row;
        path.max_count = max_drafts;
        path.width = step.plan.width;
        path.accepted = op.accepted;
        path.children = children;
        path.path = layout.path(tree_index);
        path.count = layout.path_count(tree_index);
    }
    context.backend.sample_and_follow(op, max_nodes, lists, paths);
    context.requested = op.bonus;
    context.requested_count = numel(2, rows);
}

constexpr std::string_view pq_aliases[] = {"rejection"};

}  // namespace

constinit const RuleInfo pq_info = {.id = "pq",
                                    .aliases = pq_aliases,
                                    .summary = "rejection sampling: lossless in distribution",
                                    .losslessness = Losslessness::distribution,
                                    .make = [](std::span<const std::string_view>) -> Result<RulePtr> {
                                        return {std::make_shared<PqRule>()};
                                    }};

}  // namespace draftscope
