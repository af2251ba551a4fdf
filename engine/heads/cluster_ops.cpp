#include "engine/heads/cluster_ops.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/numel.h"
#include "engine/heads/head_common.h"

namespace draftscope {
namespace {

/// Returns the sums of the first 0, 1, .. of `sizes`, each plus `always`.
std::vector<int> sums_of(const std::vector<int>& sizes, int always) {
    std::vector<int> sums = {always};
    for (const int size : sizes) sums.push_back(sums.back() + size);
    return sums;
}

}  // namespace

void ClusterOps::set_parts(Parts parts) {
    parts_ = std::move(parts);
    upload_pending_ = true;
    std::vector<int> sizes(parts_.sizes.begin(), parts_.sizes.end() - 1);
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    const int always = parts_.sizes.back();
    tokens_ = sums_of(sizes, always);
    for (int& size : sizes) size = kernels::padded_cluster_rows(size);
    columns_ = sums_of(sizes, kernels::padded_cluster_rows(always));
}

bool ClusterOps::upload_parts(kernels::Backend& backend) {
    if (!upload_pending_) return true;
    upload_pending_ =
        !(d_tokens_.upload_exact(backend, parts_.tokens) && d_first_.upload_exact(backend, parts_.first) &&
          d_sizes_.upload_exact(backend, parts_.sizes) &&
          d_cluster_of_.upload_exact(backend, parts_.cluster_of));
    return !upload_pending_;
}

bool ClusterOps::reserve(kernels::Backend& backend, int x_rows, int count, int k) {
    const int columns = max_columns(x_rows, count, false);
    // The number of columns, the columns, the ends and the shifts of the runs.
    const std::size_t lists = static_cast<std::size_t>(columns) + 1 + 2 * numel(x_rows, count + 1);
    const std::size_t vocab = parts_.cluster_of.size();
    return upload_parts(backend) && lists_.resize_at_least(backend, lists) &&
           logits_.resize_at_least(backend, numel(x_rows, columns)) &&
           scratch_.resize_at_least(backend, kernels::topk_scratch_bytes(x_rows, max_tokens(count), k)) &&
           bitmap_.resize_at_least(backend, numel(x_rows, (vocab + 31) / 32)) &&
           token_columns_.resize_at_least(backend, vocab);
}

kernels::ClustersOp ClusterOps::list_of(const std::int32_t* chosen, int x_rows, int count,
                                        int columns) const {
    kernels::ClustersOp list;
    list.chosen = chosen;
    list.rows = x_rows;
    list.count = count;
    list.clusters = static_cast<int>(parts_.sizes.size());
    list.first = d_first_.data();
    list.sizes = d_sizes_.data();
    list.column_count = lists_.data();
    list.columns = list.column_count + 1;
    list.run_ends = list.columns + columns;
    list.run_shifts = list.run_ends + numel(x_rows, count + 1);
    list.row_tokens = d_tokens_.data();
    return list;
}

/// Enqueues the logits of rows [first, first + list.rows) over the listed clusters.
void ClusterOps::enqueue_product(const kernels::Matrix& matrix, HeadCall& call,
                                 const kernels::ClustersOp& list, int first, int columns) {
    DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, list.rows, 0);
    call.backend.clusters(list);
    scope.add_bytes(list.column_count, static_cast<double>(matrix.bytes()) / matrix.n());
    kernels::MatmulOp product;
    product.weights = matrix.device_matrix();
    product.x = call.backend.at(call.x, std::ptrdiff_t{first} * product.weights.stride);
    product.rows = list.rows;
    product.y = logits_.data();
    product.y_stride = columns;
    product.chosen_count = list.column_count;
    product.chosen = list.columns;
    product.max_chosen = columns;
    call.backend.matmul(product);
}

void ClusterOps::enqueue_best(HeadCall& call, const kernels::ClustersOp& list, int first, int columns) {
    kernels::TopKOp best = topk_of(call, first, list.rows, logits_.data(), columns, max_tokens(list.count));
    best.scratch = scratch_.data();
    best.run_ends = list.run_ends;
    best.run_shifts = list.run_shifts;
    best.runs = list.count + 1;
    best.column_rows = list.columns;
    best.row_tokens = list.row_tokens;
    call.backend.topk(best);
}

void ClusterOps::enqueue_support(HeadCall& call, const kernels::ClustersOp& list, int first, int columns) {
    const int stride = call.support_stride;
    kernels::GatherColumnsOp gather;
    gather.logits = logits_.data();
    gather.stride = columns;
    gather.rows = list.rows;
    gather.max_count = max_tokens(list.count);
    gather.tokens = call.support_tokens + numel(first, stride);
    gather.token_stride = gather.out_stride = stride;
    gather.sizes = call.support_sizes + first;
    gather.columns = list.token_columns;
    gather.out = call.support_logits + numel(first, stride);
    call.backend.gather_columns(gather);
}

void ClusterOps::enqueue(const kernels::Matrix& matrix, HeadCall& call, const Choice& choice) {
    const int count = choice.count, columns = max_columns(call.rows, count, choice.per_row);
    const int together = choice.per_row ? 1 : call.rows;
    const bool sampled = call.support_logits != nullptr;
    if (sampled)
        enqueue_tokens(call.backend, choice.chosen, count, call.support_tokens, call.support_sizes, call.rows,
                       call.support_stride);
    for (int first = 0; first < call.rows; first += together) {
        kernels::ClustersOp list =
            list_of(choice.chosen + std::ptrdiff_t{first} * count, together, count, columns);
        if (sampled) list.token_columns = token_columns_.data();
        enqueue_product(matrix, call, list, first, columns);
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::topk, call.level, together,
                                       3 * numel(together, max_tokens(count)) * sizeof(float));
        if (sampled)
            enqueue_support(call, list, first, columns);
        else
            enqueue_best(call, list, first, columns);
    }
}

void ClusterOps::enqueue_tokens(kernels::Backend& backend, const std::int32_t* chosen, int count,
                                std::int32_t* tokens, std::int32_t* size, int sets, int stride) {
    kernels::ClusterTokensOp op;
    op.chosen = chosen;
    op.count = count;
    op.clusters = static_cast<int>(parts_.sizes.size());
    op.cluster_of = d_cluster_of_.data();
    op.vocab = static_cast<int>(parts_.cluster_of.size());
    op.bitmap = bitmap_.data();
    op.tokens = tokens;
    op.size = size;
    op.sets = sets;
    op.stride = stride;
    backend.cluster_tokens(op);
}

}  // namespace draftscope
