#include "engine/decode/logits_queries.h"

#include <algorithm>

#include "engine/heads/head_call.h"
#include "engine/shadow/shadow_evaluator.h"
#include "engine/verify/verification.h"

namespace draftscope {

LogitsQueries::LogitsQueries(DecodeContext& core) : core_(core) {
    if (records_nodes()) best_ = std::max(best_, num_top_tokens);
    if (core.head != nullptr) best_ = std::max(best_, core.head->target_tokens().at_verified);
    if (can_evaluate_shadows(core))
        for (const ShadowHead& shadow : core.options.shadows)
            best_ = std::max(
                {best_, shadow.head->target_tokens().at_prompt, shadow.head->target_tokens().at_verified});
    best_ = std::min(best_, core.vocab);
}

LogitsQuery LogitsQueries::query(std::span<const Round> rounds, RoundPlan& plan, bool grown) {
    const Sampling& sampling = core_.options.sampling;
    const AcceptanceRule& rule = *core_.rule;
    LogitsQuery query = make_query(rule, sampling, core_.vocab);
    const bool any_drafts =
        std::ranges::any_of(plan.trees, [](const TreePlan& tree) { return tree.nodes > 1; });
    query.best = std::max(query.best, best_);
    query.ranks = records_nodes();
    query.drafts = any_drafts && (query.ranks || query.drafts);
    // Simulated acceptance measures the round time of any rule, and shadow heads read complete rows.
    query.complete = rule.info().is_simulated() || !core_.options.shadows.empty();
    positions_.clear();
    for (const Round& round : rounds)
        positions_.push_back(
            {round.sequence->number, static_cast<std::int64_t>(round.sequence->tokens.size())});
    add_acceptance_inputs(rule, sampling, positions_, plan);
    if (!records_nodes() || core_.drafting_head() == nullptr) return query;
    plan.sets_by_head = grown && core_.head->shape(0, 1).set > 0;
    if (!plan.sets_by_head) list_sets(rounds, plan);
    return query;
}

/// Adds the tokens that the rounds' heads can propose to the plan.
void LogitsQueries::list_sets(std::span<const Round> rounds, RoundPlan& plan) const {
    plan.sets.assign(plan.trees.size() * plan.width, nullptr);
    for (std::size_t i = 0; i < rounds.size(); ++i)
        for (int depth = 0; depth <= plan.trees[i].levels; ++depth)
            plan.sets[plan.at(i, depth)] = rounds[i].sequence->active->restricted_ids(depth);
    if (std::ranges::all_of(plan.sets, [](const auto* set) { return set == nullptr; })) plan.sets.clear();
}

TreeLogits LogitsQueries::tree_logits(const Round& round) const {
    return {core_.options.sampling, round.choices, core_.answers, round.first_row};
}

RoundOutcome make_round_outcome(DecodeContext& core, const Round& round) {
    return {round.tree,
            round.choices,
            round.acceptance.path,
            round.emitted,
            core.options.sampling,
            core.answers,
            round.first_row,
            round.index};
}

}  // namespace draftscope
