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
    query.typical = needs.entropies;
    query.epsilon = needs.epsilon;
    query.delta = needs.delta;
    query.rejections = needs.rejections;
    query.first_children = rule.info().is_simulated();
    if (!sampled) return query;
    query.scale = inverse_temperature(sampling);
    query.top_k = sampling.top_k;
    query.top_p = sampling.top_p;
    return query;
}

void add_acceptance_inputs(const AcceptanceRule& rule, const Sampling& sampling, const TokenPosition& place,
                           TreePlan& plan) {
    plan.max_path = 1 + rule.max_accepted(sampling, place, plan.levels);
    for (int depth = 0; depth <= plan.levels; ++depth) {
        const std::int64_t position = place.position + depth;
        for (int order = 0; order < plan.max_drafts; ++order)
            plan.draft_uniforms.push_back(accept_uniform(sampling.seed, place.sequence, position, order));
        if (sampling.temperature > 0)
            plan.uniforms.push_back(
                token_uniform(sampling.seed, place.sequence, static_cast<std::uint64_t>(position)));
    }
}

void read_choices(const LogitsResult& answers, const Sampling& sampling, std::vector<TargetSample>& out) {
    out.resize(answers.choices.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
        out[r] = {answers.choices[r], 0, answers.log_norm[r], answers.lowest[r], answers.choice_logits[r]};
        out[r].prob = target_probability(out[r], sampling, answers.choice_logits[r]);
    }
}

}  // namespace draftscope
