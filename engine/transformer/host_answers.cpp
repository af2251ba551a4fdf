#include "engine/transformer/host_answers.h"

#include <algorithm>
#include <limits>

namespace draftscope {

bool HostAnswers::can_answer(const kernels::Exec& exec, const LogitsQuery& query) {
    return query.scale == 1.0f && !query.drafts && !query.entropies && !query.residuals &&
           kernels::matmul_topk_pays_off(exec, query.vocab, std::min(query.best, query.vocab));
}

void HostAnswers::answer(kernels::Exec& exec, const kernels::Matrix& lm_head, Rows<const float> hidden,
                         const LogitsQuery& query, LogitsResult& out) {
    const std::size_t rows = hidden.rows;
    out.best = std::min(query.best, query.vocab);
    const std::size_t best = out.best;
    out.best_ids.resize(rows * best);
    out.best_logits.resize(rows * best);
    out.choices.resize(rows);
    out.choice_logits.resize(rows);
    out.log_norm.resize(rows);
    out.lowest.assign(rows, -std::numeric_limits<float>::infinity());
    out.entropies.clear();
    out.logits.clear();
    out.ranks.clear();
    out.masses.clear();
    kernels::matmul_topk(exec, lm_head, hidden, query.vocab, out.best, nullptr, partials_);
    kernels::finish_logsumexp(partials_, out.log_norm);
    kernels::finish_topk(partials_, Rows<std::int32_t>(out.best_ids.data(), hidden.rows, out.best),
                         Rows<float>(out.best_logits.data(), hidden.rows, out.best));
    for (std::size_t r = 0; r < rows; ++r) {
        out.choices[r] = out.best_ids[r * best];
        out.choice_logits[r] = out.best_logits[r * best];
    }
}

}  // namespace draftscope
