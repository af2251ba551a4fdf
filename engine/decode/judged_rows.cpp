#include "engine/decode/judged_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "engine/heads/head_there.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {

JudgedRows::JudgedRows(DecodeContext& core) : core_(core) {
    if (core.records.on() && core.options.record_nodes) best_ = num_top_tokens;
    if (core.head != nullptr) best_ = std::max(best_, core.head->target_tokens().at_verified);
    if (can_evaluate_shadows(core))
        for (const ShadowHead& shadow : core.options.shadows)
            best_ = std::max({best_, shadow.head->target_tokens().at_prompt, shadow.head->target_tokens().at_verified});
    best_ = std::min(best_, core.vocab);
}

bool JudgedRows::accepts_there() const {
    return core_.rule->needs().device_path;
}

/// Returns the part of a query that depends only on the session.
RowQuestion JudgedRows::choices_asked() const {
    const Sampling& sampling = core_.options.sampling;
    RowQuestion question;
    question.vocab = core_.vocab;
    question.best = best_;
    if (sampling.temperature <= 0) return question;
    question.scale = inverse_temperature(sampling);
    question.top_k = sampling.top_k;
    question.top_p = sampling.top_p;
    const RuleNeeds needs = core_.rule->needs();
    question.entropies = needs.entropies;
    question.epsilon = needs.epsilon;
    question.delta = needs.delta;
    return question;
}

const RowQuestion* JudgedRows::ask_trees(std::span<const Round> rounds, std::span<TreePlan> plans,
                                         bool grown) {
    const Sampling& sampling = core_.options.sampling;
    question_ = choices_asked();
    question_.ranks = core_.records.on() && core_.options.record_nodes;
    question_.drafts = question_.ranks || core_.rule->needs().draft_logits;
    const bool wants_sets = question_.ranks && core_.drafting_head() != nullptr;
    const bool come = grown && wants_sets && core_.head->there() != nullptr &&
                      core_.head->there()->set_room(0, 1) > 0;
    bool any = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        plans[i].sets_come = come;
        const Sequence& sequence = *rounds[i].sequence;
        for (int depth = 0; depth <= plans[i].levels; ++depth) {
            const std::uint64_t position = sequence.tokens.size() + static_cast<std::uint64_t>(depth);
            for (int order = 0; order < plans[i].most_drafts; ++order)
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
    question_.residuals = core_.rule->needs().rejections;
    if (question_.residuals) {
        int rows = 0;
        for (const TreePlan& plan : plans) rows += plan.nodes;
        residual_of_.resize(rows);
        std::iota(residual_of_.begin(), residual_of_.end(), 0);
    }
    return &question_;
}

const RowQuestion* JudgedRows::ask(std::span<const Round> rounds) {
    question_ = choices_asked();
    return choices_suffice(rounds) ? &question_ : nullptr;
}

/// Returns whether greedy choices and best tokens suffice. Recorded drafts are looked up in their parents'
/// rows, and shadow heads read complete rows.
bool JudgedRows::choices_suffice(std::span<const Round> rounds) const {
    // Simulated acceptance measures the round time of any rule, so it computes complete rows.
    if (core_.options.sampling.temperature > 0 || core_.rule->info().is_simulated() ||
        !core_.options.shadows.empty())
        return false;
    if (!core_.records.on() || !core_.options.record_nodes) return true;
    return core_.drafting_head() == nullptr &&
           std::all_of(rounds.begin(), rounds.end(), [](const Round& r) { return r.tree.size() == 1; });
}

TreeLogits JudgedRows::tree_logits(const Round& round, const TokenPosition& position) const {
    TreeLogits logits{core_.exec, core_.options.sampling, position, round.choices};
    if (!core_.forward.answered) {
        logits.rows = core_.logits(round.first_row, round.tree.size());
        return logits;
    }
    logits.answers = &core_.forward.answers;
    logits.first_row = round.first_row;
    if (core_.rule->needs().rejections)
        logits.rejection_nodes = std::span(residual_of_).subspan(round.first_row, round.tree.tokens.size());
    return logits;
}

void JudgedRows::choose(std::vector<TargetSample>& out) const {
    const RowAnswers& answers = core_.forward.answers;
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
    const bool there = core.forward.answered;
    return {round.tree,
            round.choices,
            round.acceptance.path,
            round.emitted,
            there ? Rows<const float>() : core.logits(round.first_row, round.tree.size()),
            core.options.sampling,
            there ? &core.forward.answers : nullptr,
            round.first_row};
}

}  // namespace draftscope
