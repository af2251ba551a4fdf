#include "kernels/head_clusters.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/numel.h"

namespace draftscope::kernels {
namespace {

std::size_t count_of(int rows, int cols) {
    return numel(rows, cols);
}

/// Returns the sums of the first 0, 1, .. of `sizes`, each plus `always`.
std::vector<int> sums_of(const std::vector<int>& sizes, int always) {
    std::vector<int> sums = {always};
    for (const int size : sizes) sums.push_back(sums.back() + size);
    return sums;
}

}  // namespace

void DeviceClusters::set_parts(Parts parts) {
    parts_ = std::move(parts);
    fresh_ = true;
    std::vector<int> sizes(parts_.sizes.begin(), parts_.sizes.end() - 1);
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    const int always = parts_.sizes.back();
    tokens_ = sums_of(sizes, always);
    for (int& size : sizes) size = padded_cluster_rows(size);
    columns_ = sums_of(sizes, padded_cluster_rows(always));
}

bool DeviceClusters::upload_parts(Device& device) {
    if (!fresh_) return true;
    fresh_ = !(d_tokens_.upload_exact(device, parts_.tokens) && d_first_.upload_exact(device, parts_.first) &&
               d_sizes_.upload_exact(device, parts_.sizes) &&
               d_cluster_of_.upload_exact(device, parts_.cluster_of));
    return !fresh_;
}

bool DeviceClusters::reserve(const Matrix& rows, int x_rows, int count, int k) {
    Device& device = rows.device();
    const int columns = max_columns(x_rows, count, false);
    // The number of columns, the columns, the ends and the shifts of the runs.
    const std::size_t lists = static_cast<std::size_t>(columns) + 1 + 2 * count_of(x_rows, count + 1);
    const std::size_t vocab = parts_.cluster_of.size();
    return upload_parts(device) && lists_.resize_at_least(device, lists) &&
           logits_.resize_at_least(device, count_of(x_rows, columns)) &&
           scratch_.resize_at_least(device, topk_scratch_bytes(x_rows, max_tokens(count), k)) &&
           bitmap_.resize_at_least(device, numel(x_rows, (vocab + 31) / 32)) &&
           token_columns_.resize_at_least(device, vocab);
}

ClustersOp DeviceClusters::list_of(const std::int32_t* chosen, int x_rows, int count, int columns) const {
    ClustersOp list;
    list.chosen = chosen;
    list.rows = x_rows;
    list.count = count;
    list.clusters = static_cast<int>(parts_.sizes.size());
    list.first = d_first_.as<std::int32_t>();
    list.sizes = d_sizes_.as<std::int32_t>();
    list.column_count = lists_.as<std::int32_t>();
    list.columns = list.column_count + 1;
    list.run_ends = list.columns + columns;
    list.run_shifts = list.run_ends + count_of(x_rows, count + 1);
    list.row_tokens = d_tokens_.as<std::int32_t>();
    return list;
}

MatmulOp DeviceClusters::product_of(const Matrix& rows, const half_t* x, const ClustersOp& list,
                                    int columns) const {
    MatmulOp product;
    product.weights = rows.device_matrix();
    product.x = x;
    product.rows = list.rows;
    product.y = logits_.as<float>();
    product.y_stride = columns;
    product.chosen_count = list.column_count;
    product.chosen = list.columns;
    product.max_chosen = columns;
    return product;
}

void DeviceClusters::enqueue(const Matrix& matrix, const Call& call, int k, std::int32_t* ids, float* values,
                             float* sums) {
    Device& device = matrix.device();
    const int count = call.count, columns = max_columns(call.rows, count, call.per_row);
    const int together = call.per_row ? 1 : call.rows;
    for (int first = 0; first < call.rows; first += together) {
        const ClustersOp list = list_of(call.chosen + count_of(first, count), together, count, columns);
        device.clusters(list);
        device.matmul(
            product_of(matrix, call.x + count_of(first, matrix.device_matrix().stride), list, columns));
        TopKOp best;
        best.logits = logits_.as<float>();
        best.stride = columns;
        best.rows = together;
        best.support = max_tokens(count);
        best.k = k;
        best.ids = ids + count_of(first, k);
        best.values = values + count_of(first, k);
        best.logsumexp = sums + first;
        best.scratch = scratch_.as<void>();
        best.run_ends = list.run_ends;
        best.run_shifts = list.run_shifts;
        best.runs = count + 1;
        best.column_rows = list.columns;
        best.row_tokens = list.row_tokens;
        device.topk(best);
    }
}

void DeviceClusters::enqueue_own(const Matrix& matrix, const Call& call, float* logits, std::int32_t* tokens,
                                 std::int32_t* sizes, int stride) {
    Device& device = matrix.device();
    const int count = call.count, columns = max_columns(call.rows, count, call.per_row);
    const int together = call.per_row ? 1 : call.rows;
    enqueue_tokens(device, call.chosen, count, tokens, sizes, call.rows, stride);
    for (int first = 0; first < call.rows; first += together) {
        ClustersOp list = list_of(call.chosen + count_of(first, count), together, count, columns);
        list.token_columns = token_columns_.as<std::int32_t>();
        device.clusters(list);
        device.matmul(
            product_of(matrix, call.x + count_of(first, matrix.device_matrix().stride), list, columns));
        GatherColumnsOp own;
        own.logits = logits_.as<float>();
        own.stride = columns;
        own.rows = together;
        own.max_count = max_tokens(count);
        own.tokens = tokens + count_of(first, stride);
        own.token_stride = own.out_stride = stride;
        own.sizes = sizes + first;
        own.columns = list.token_columns;
        own.out = logits + count_of(first, stride);
        device.gather_columns(own);
    }
}

void DeviceClusters::enqueue_tokens(Device& device, const std::int32_t* chosen, int count,
                                    std::int32_t* tokens, std::int32_t* size, int sets, int stride) {
    ClusterTokensOp op;
    op.chosen = chosen;
    op.count = count;
    op.clusters = static_cast<int>(parts_.sizes.size());
    op.cluster_of = d_cluster_of_.as<std::int32_t>();
    op.vocab = static_cast<int>(parts_.cluster_of.size());
    op.bitmap = bitmap_.as<std::uint32_t>();
    op.tokens = tokens;
    op.size = size;
    op.sets = sets;
    op.stride = stride;
    device.cluster_tokens(op);
}

}  // namespace draftscope::kernels
