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

LogitsQuery LogitsQueries::query(std::span<const Round> rounds, std::span<TreePlan> plans, bool grown) {
    const Sampling& sampling = core_.options.sampling;
    const AcceptanceRule& rule = *core_.rule;
    LogitsQuery query = make_query(rule, sampling, core_.vocab);
    bool any_drafts = false;
    for (const TreePlan& plan : plans) any_drafts = any_drafts || plan.nodes > 1;
    query.best = std::max(query.best, best_);
    query.ranks = records_nodes();
    query.drafts = any_drafts && (query.ranks || query.drafts);
    // Simulated acceptance measures the round time of any rule, and shadow heads read complete rows.
    query.complete = rule.info().is_simulated() || !core_.options.shadows.empty();
    const LmHead* head = core_.backend.is_host() ? nullptr : core_.head;
    const bool sets_come = grown && records_nodes() && head != nullptr && head->shape(0, 1).set > 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Sequence& sequence = *rounds[i].sequence;
        plans[i].sets_come = sets_come;
        add_acceptance_inputs(rule, sampling,
                              {sequence.number, static_cast<std::int64_t>(sequence.tokens.size())}, plans[i]);
    }
    return query;
}

void LogitsQueries::list_sets(std::span<const Round> rounds, std::span<TreePlan> plans) const {
    if (!records_nodes() || core_.drafting_head() == nullptr || plans.front().sets_come) return;
    bool any = false;
    for (std::size_t i = 0; i < plans.size(); ++i)
        for (int depth = 0; depth <= plans[i].levels; ++depth) {
            plans[i].sets.push_back(rounds[i].sequence->active->restricted_ids(depth));
            any = any || plans[i].sets.back() != nullptr;
        }
    for (TreePlan& plan : plans)
        if (!any) plan.sets.clear();
}

TreeLogits LogitsQueries::tree_logits(const Round& round) const {
    return {core_.options.sampling, round.choices, core_.forward.answers, round.first_row};
}

RoundOutcome make_round_outcome(DecodeContext& core, const Round& round) {
    return {round.tree,
            round.choices,
            round.acceptance.path,
            round.emitted,
            core.options.sampling,
            core.forward.answers,
            round.first_row,
            round.index};
}

}  // namespace draftscope
