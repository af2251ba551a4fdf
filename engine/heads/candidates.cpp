#include "engine/heads/candidates.h"

#include <algorithm>
#include <limits>

#include "base/numel.h"
#include "kernels/matmul.h"
#include "kernels/topk.h"

namespace draftscope {
Rows<float> as_matrix(std::vector<float>& memory, int rows, int columns) {
    const std::size_t cells = numel(rows, columns);
    if (memory.size() < cells) memory.resize(cells + cells / 4);
    return {memory.data(), rows, columns};
}

void Proposal::resize(int rows, int k_in) {
    k = k_in;
    const std::size_t r = rows, cells = r * k_in;
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

void store_support_logits(ProposeContext& context, Rows<const float> logits, int support,
                          std::span<const TokenId> ids) {
    if (context.support == nullptr) return;
    for (int r = 0; r < logits.rows; ++r) {
        const std::span<const float> row = logits.row(r).first(support);
        SparseLogits& kept = context.support->add();
        kept.ids.assign(ids.begin(), ids.end());
        kept.logits.assign(row.begin(), row.end());
    }
}

void LinearProposer::propose(ProposeContext& context, const kernels::Matrix& rows, const float* bias,
                             int support, std::span<const TokenId> ids, Rows<const float> hidden, int k,
                             std::uint64_t bytes, Proposal& out) {
    const int kept = std::min(k, support);
    if (context.support != nullptr || !kernels::matmul_topk_pays_off(context.exec, support, kept)) {
        const Rows<float> logits = as_matrix(logits_, hidden.rows, rows.n());
        {
            PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows, bytes);
            kernels::matmul(context.exec, rows, hidden, logits, bias);
        }
        select_candidates(context, logits, support, k, out);
        store_support_logits(context, logits, support, ids);
        return;
    }
    {
        PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows, bytes);
        kernels::matmul_topk(context.exec, rows, hidden, support, kept, bias, partials_);
    }
    PhaseScope scope(context.phases, Phase::topk, context.level, hidden.rows,
                     partials_.keys.size() * sizeof(partials_.keys[0]));
    out.resize(hidden.rows, k);
    {
        PhaseScope softmax(context.phases, Phase::softmax, context.level, hidden.rows,
                           partials_.sums.size() * sizeof(partials_.sums[0]));
        kernels::finish_logsumexp(partials_, out.logsumexp);
    }
    kernels::finish_topk(partials_, Rows<std::int32_t>(out.ids.data(), hidden.rows, kept, k),
                         Rows<float>(out.logits.data(), hidden.rows, kept, k));
    std::fill(out.counts.begin(), out.counts.end(), kept);
}

void propose_rows(ProposeContext& context, const kernels::Matrix& rows, std::span<const TokenId> ids,
                  Rows<const float> hidden, int k, LinearProposer& dense, Proposal& out) {
    dense.propose(context, rows, nullptr, rows.n(), ids, hidden, k, rows.bytes(), out);
    remap_ids(context, ids, hidden.rows, out);
}

void propose_gathered(ProposeContext& context, const kernels::RowMajorMatrix& store,
                      std::span<const TokenId> at, std::span<const TokenId> ids, Rows<const float> hidden,
                      int k, std::vector<float>& logits, Proposal& out) {
    const int n = static_cast<int>(at.size());
    const Rows<float> found = as_matrix(logits, hidden.rows, n);
    {
        PhaseScope scope(context.phases, Phase::head, context.level, hidden.rows,
                         at.size() * store.row_bytes());
        kernels::matmul_rows(context.exec, store, at, hidden, found);
    }
    select_candidates(context, found, n, k, out);
    store_support_logits(context, found, n, ids);
    remap_ids(context, ids, hidden.rows, out);
}

void remap_ids(ProposeContext& context, std::span<const TokenId> ids, int rows, Proposal& out) {
    PhaseScope gather(context.phases, Phase::gather, context.level, rows);
    PhaseScope remap(context.phases, Phase::remap, context.level, rows, out.ids.size() * 2 * sizeof(TokenId));
    for (TokenId& id : out.ids)
        if (id != no_token) id = ids[id];
}

HeadCost matrix_cost(const kernels::Matrix& rows) {
    return {static_cast<double>(rows.n()), rows.bytes(),
            2.0 * static_cast<double>(rows.n()) * static_cast<double>(rows.k()), Lane::critical};
}

Status check_weights(const HeadWeights& weights, std::string_view head) {
    if (weights.lm_head == nullptr || weights.vocab < 1 ||
        (weights.row_ids.empty() && weights.vocab > weights.lm_head->n()))
        return failed("head {}: no LM head for {} tokens", head, weights.vocab);
    return {};
}

int vocab_fraction(int vocab, int parts) {
    return std::min(vocab, (vocab / parts + 63) / 64 * 64);
}

}  // namespace draftscope
