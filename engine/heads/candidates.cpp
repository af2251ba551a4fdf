#include "engine/heads/candidates.h"

#include <algorithm>
#include <limits>

#include "kernels/topk.h"

namespace draftscope {

void Proposal::resize(int rows, int k_in) {
    k = k_in;
    const auto r = static_cast<std::size_t>(rows), cells = r * static_cast<std::size_t>(k_in);
    ids.assign(cells, no_token);
    logits.assign(cells, -std::numeric_limits<float>::infinity());
    logsumexp.assign(r, 0.0f);
    counts.assign(r, 0);
}

void select_candidates(ProposeContext& context, Rows<const float> logits, int support, int k, Proposal& out) {
    const Rows<const float> real(logits.data, logits.rows, support, logits.stride);
    const auto bytes =
        static_cast<std::uint64_t>(real.rows) * static_cast<std::uint64_t>(support) * sizeof(float);
    PhaseScope scope(context.phases, Phase::topk, context.level, real.rows, 2 * bytes);
    out.resize(real.rows, k);
    {
        PhaseScope softmax(context.phases, Phase::softmax, context.level, real.rows, bytes);
        kernels::logsumexp(context.exec, real, out.logsumexp);
    }
    const int kept = std::min(k, support);
    kernels::topk(context.exec, real, kept, Rows<std::int32_t>(out.ids.data(), real.rows, kept, k),
                  Rows<float>(out.logits.data(), real.rows, kept, k));
    std::fill(out.counts.begin(), out.counts.end(), kept);
}

}  // namespace draftscope
