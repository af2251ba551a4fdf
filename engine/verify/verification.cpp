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
                           std::span<const TokenPosition> roots, RoundPlan& plan) {
    const bool sampled = sampling.temperature > 0;
    const std::size_t entries = roots.size() * plan.width;
    if (sampled) plan.uniforms.assign(entries, 0.0);
    plan.draft_uniforms.assign(entries * plan.max_drafts, 0.0);
    for (std::size_t i = 0; i < roots.size(); ++i) {
        TreePlan& tree = plan.trees[i];
        tree.max_path = 1 + rule.max_accepted(sampling, roots[i], tree.levels);
        for (int depth = 0; depth <= tree.levels; ++depth) {
            const std::int64_t position = roots[i].position + depth;
            const std::size_t at = plan.at(i, depth);
            for (int order = 0; order < plan.max_drafts; ++order)
                plan.draft_uniforms[at * plan.max_drafts + order] =
                    accept_uniform(sampling.seed, roots[i].sequence, position, order);
            if (sampled)
                plan.uniforms[at] =
                    token_uniform(sampling.seed, roots[i].sequence, static_cast<std::uint64_t>(position));
        }
    }
}

void read_choices(const LogitsResult& results, const Sampling& sampling, std::vector<TargetSample>& out) {
    out.resize(results.choices.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
        out[r] = {results.choices[r], 0, results.log_norm[r], results.min_logit[r], results.choice_logits[r]};
        out[r].prob = target_probability(out[r], sampling, results.choice_logits[r]);
    }
}

}  // namespace draftscope
