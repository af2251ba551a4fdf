#include "engine/verify/verification.h"

#include <cstdint>

#include "base/rng.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

LogitsQuery make_query(const AcceptanceRule& rule, const Sampling& sampling, int vocab) {
    const RuleNeeds needs = rule.needs();
    const bool sampled = sampling.temperature > 0;
    LogitsQuery query;
    query.vocab = vocab;
    query.best = sampled ? needs.best_tokens : 1;
    query.drafts = needs.draft_logits;
    query.ranks = false;
    if (!sampled) return query;
    query.scale = inverse_temperature(sampling);
    query.top_k = sampling.top_k;
    query.top_p = sampling.top_p;
    return query;
}

void add_acceptance_inputs(const AcceptanceRule& rule, const Sampling& sampling,
                           std::span<const TokenPosition> places, RoundPlan& plan) {
    const bool sampled = sampling.temperature > 0;
    const std::size_t entries = places.size() * plan.width;
    if (sampled) plan.uniforms.assign(entries, 0.0);
    plan.draft_uniforms.assign(entries * plan.max_drafts, 0.0);
    for (std::size_t i = 0; i < places.size(); ++i) {
        TreePlan& tree = plan.trees[i];
        tree.max_path = 1 + rule.max_accepted(sampling, places[i], tree.levels);
        for (int depth = 0; depth <= tree.levels; ++depth) {
            const std::int64_t position = places[i].position + depth;
            const std::size_t at = plan.at(i, depth);
            for (int order = 0; order < plan.max_drafts; ++order)
                plan.draft_uniforms[at * plan.max_drafts + order] =
                    accept_uniform(sampling.seed, places[i].sequence, position, order);
            if (sampled)
                plan.uniforms[at] =
                    token_uniform(sampling.seed, places[i].sequence, static_cast<std::uint64_t>(position));
        }
    }
}

void read_choices(const LogitsResult& answers, const Sampling& sampling, std::vector<TargetSample>& out) {
    out.resize(answers.choices.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
        out[r] = {answers.choices[r], 0, answers.log_norm[r], answers.min_logit[r], answers.choice_logits[r]};
        out[r].prob = target_probability(out[r], sampling, answers.choice_logits[r]);
    }
}

}  // namespace draftscope
