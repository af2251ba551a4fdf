#include "engine/heads/listed_rows.h"

#include "base/numel.h"
#include "engine/heads/head_common.h"

namespace draftscope {

bool ListedTokens::upload(kernels::Backend& backend, std::span<const TokenId> ids,
                          std::span<const TokenId> rows, int max_count) {
    ids_.clear();
    if (!d_ids_.resize_at_least(backend, numel(max_count + 1, 1)) ||
        (!rows.empty() && !d_rows_.resize_at_least(backend, numel(max_count, 1))))
        return false;
    ids_.reserve(numel(max_count + 1, 1));
    ids_.push_back(static_cast<std::int32_t>(ids.size()));
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    backend.upload(d_ids_.data(), ids_.data(), ids_.size() * sizeof(std::int32_t));
    if (!rows.empty()) backend.upload(d_rows_.data(), rows.data(), rows.size_bytes());
    return true;
}

bool ListedRows::reserve(kernels::Backend& backend, int rows, int tokens, int k) {
    return scratch_.resize_at_least(backend, kernels::topk_scratch_bytes(rows, tokens, k)) &&
           logits_.resize_at_least(backend, numel(rows, tokens));
}

void ListedRows::enqueue(HeadCall& call, const HeadSequence& sequence, const kernels::RowMajorMatrix& store,
                         const ListedTokens& tokens) {
    if (tokens.count() == 0) return leave_no_candidates(call, sequence.first_row, sequence.rows);
    const std::ptrdiff_t first = sequence.first_row;
    kernels::MatmulOp product;
    product.weights = store.device_matrix();
    product.x = call.backend.at(call.x, first * product.weights.stride);
    product.rows = sequence.rows;
    product.chosen_count = tokens.size();
    product.chosen = tokens.rows();
    product.max_chosen = tokens.count();
    product.y = logits_.data();
    product.y_stride = tokens.count();
    {
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, sequence.rows,
                                       numel(tokens.count(), store.row_bytes()));
        if (call.support_logits != nullptr) return enqueue_support(call, sequence, tokens, product);
        call.backend.matmul(product);
    }
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::topk, call.level, sequence.rows,
                                   2 * numel(sequence.rows, tokens.count()) * sizeof(float));
    kernels::TopKOp select =
        topk_of(call, sequence.first_row, sequence.rows, product.y, tokens.count(), tokens.count());
    select.scratch = scratch_.data();
    call.backend.topk(select);
    call.backend.remap_ids({select.ids, sequence.rows * call.k, nullptr, tokens.ids(), select.ids});
}

void enqueue_support(HeadCall& call, const HeadSequence& sequence, const ListedTokens& tokens,
                     kernels::MatmulOp product) {
    const std::ptrdiff_t to = std::ptrdiff_t{sequence.first_row} * call.support_stride;
    product.y = call.support_logits + to;
    product.y_stride = call.support_stride;
    call.backend.matmul(product);
    const kernels::CopyRowsOp copies[] = {
        copy_of_words(tokens.ids(), 0, sequence.rows, tokens.count(), call.support_tokens + to,
                      call.support_stride),
        copy_of_words(tokens.size(), 0, sequence.rows, 1, call.support_sizes + sequence.first_row, 1)};
    call.backend.copy_rows(copies);
}

}  // namespace draftscope
