#include "engine/decode/logits_queries.h"

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "engine/heads/device_head.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {

LogitsQueries::LogitsQueries(DecodeContext& core) : core_(core) {
    if (core.records.on() && core.options.record_nodes) best_ = num_top_tokens;
    if (core.head != nullptr) best_ = std::max(best_, core.head->target_tokens().at_verified);
    if (can_evaluate_shadows(core))
        for (const ShadowHead& shadow : core.options.shadows)
            best_ = std::max(
                {best_, shadow.head->target_tokens().at_prompt, shadow.head->target_tokens().at_verified});
    best_ = std::min(best_, core.vocab);
}

bool LogitsQueries::accepts_on_device() const {
    return core_.rule->needs().device_path;
}

/// Returns the part of a query that depends only on the session.
LogitsQuery LogitsQueries::base_query() const {
    const Sampling& sampling = core_.options.sampling;
    LogitsQuery query;
    query.vocab = core_.vocab;
    query.best = best_;
    if (sampling.temperature <= 0) return query;
    query.scale = inverse_temperature(sampling);
    query.top_k = sampling.top_k;
    query.top_p = sampling.top_p;
    const RuleNeeds needs = core_.rule->needs();
    query.entropies = needs.entropies;
    query.epsilon = needs.epsilon;
    query.delta = needs.delta;
    return query;
}

const LogitsQuery* LogitsQueries::tree_query(std::span<const Round> rounds, std::span<TreePlan> plans,
                                             bool grown) {
    const Sampling& sampling = core_.options.sampling;
    query_ = base_query();
    query_.ranks = core_.records.on() && core_.options.record_nodes;
    query_.drafts = query_.ranks || core_.rule->needs().draft_logits;
    const bool wants_sets = query_.ranks && core_.drafting_head() != nullptr;
    const bool come = grown && wants_sets && core_.head->device_head() != nullptr &&
                      core_.head->device_head()->max_set_size(0, 1) > 0;
    bool any = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        plans[i].sets_come = come;
        const Sequence& sequence = *rounds[i].sequence;
        for (int depth = 0; depth <= plans[i].levels; ++depth) {
            const std::uint64_t position = sequence.tokens.size() + static_cast<std::uint64_t>(depth);
            for (int order = 0; order < plans[i].max_drafts; ++order)
                plans[i].draft_uniforms.push_back(accept_uniform(sampling.seed, sequence.number,
                                                                 static_cast<std::int64_t>(position), order));
            if (sampling.temperature > 0)
                plans[i].uniforms.push_back(token_uniform(sampling.seed, sequence.number, position));
            if (!wants_sets || come) continue;
            plans[i].sets.push_back(sequence.active->restricted_ids(depth));
            any = any || plans[i].sets.back() != nullptr;
        }
    }
    for (TreePlan& plan : plans)
        if (!any) plan.sets.clear();
    query_.residuals = core_.rule->needs().rejections;
    if (query_.residuals) {
        int rows = 0;
        for (const TreePlan& plan : plans) rows += plan.nodes;
        rejection_nodes_.resize(rows);
        std::iota(rejection_nodes_.begin(), rejection_nodes_.end(), 0);
    }
    return &query_;
}

const LogitsQuery* LogitsQueries::query(std::span<const Round> rounds) {
    query_ = base_query();
    return choices_suffice(rounds) ? &query_ : nullptr;
}

/// Returns whether greedy choices and best tokens suffice. Recorded drafts are looked up in their parents'
/// rows, and shadow heads read complete rows.
bool LogitsQueries::choices_suffice(std::span<const Round> rounds) const {
    // Simulated acceptance measures the round time of any rule, so it computes complete rows.
    if (core_.options.sampling.temperature > 0 || core_.rule->info().is_simulated() ||
        !core_.options.shadows.empty())
        return false;
    if (!core_.records.on() || !core_.options.record_nodes) return true;
    return core_.drafting_head() == nullptr &&
           std::all_of(rounds.begin(), rounds.end(), [](const Round& r) { return r.tree.size() == 1; });
}

TreeLogits LogitsQueries::tree_logits(const Round& round, const TokenPosition& position) const {
    TreeLogits logits{core_.exec, core_.options.sampling, position, round.choices};
    if (!core_.forward.answered) {
        logits.rows = core_.logits(round.first_row, round.tree.size());
        return logits;
    }
    logits.answers = &core_.forward.answers;
    logits.first_row = round.first_row;
    if (core_.rule->needs().rejections)
        logits.rejection_nodes =
            std::span(rejection_nodes_).subspan(round.first_row, round.tree.tokens.size());
    return logits;
}

void LogitsQueries::choose(std::vector<TargetSample>& out) const {
    const LogitsResult& answers = core_.forward.answers;
    out.resize(answers.choices.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
        TargetSample& choice = out[r];
        choice.token = answers.choices[r];
        choice.log_norm = answers.log_norm[r];
        choice.min_logit = answers.lowest[r];
        choice.prob = target_probability(choice, core_.options.sampling, answers.choice_logits[r]);
    }
}

RoundOutcome make_round_outcome(DecodeContext& core, const Round& round) {
    const bool on_device = core.forward.answered;
    return {round.tree,
            round.choices,
            round.acceptance.path,
            round.emitted,
            on_device ? Rows<const float>() : core.logits(round.first_row, round.tree.size()),
            core.options.sampling,
            on_device ? &core.forward.answers : nullptr,
            round.first_row};
}

}  // namespace draftscope
