#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/matrix.h"

/// Selection of the largest values of rows, alone or fused with a matrix product.
namespace draftscope::kernels {

/// Selects the k largest of the first `support` logits of each row, and log(sum(exp)) of all of them. The
/// order is descending, ties to the lower column. NaN counts as the smallest. Rows with fewer than k
/// candidates end with id -1 and value -inf.
struct TopKOp {
    const float* logits = nullptr;
    std::int64_t stride = 0;
    int rows = 0, support = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k]
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows], or null
    void* scratch = nullptr;      ///< topk_scratch_bytes() bytes
    /// Per-row candidates: row m's are the tokens candidates[m * candidate_stride + i], i < support,
    /// ascending. The logit of token t is in column columns[t], or in column i if `columns` is null; the CPU
    /// prefers the `index` of UniqueTokensOp. Ids are tokens; negative tokens are skipped. Null = all columns
    /// in order.
    const std::int32_t* candidates = nullptr;
    std::int64_t candidate_stride = 0;
    const std::int32_t* columns = nullptr;
    const std::uint64_t* index = nullptr;
    /// Alternatively, row m's candidates are in `runs` runs of columns, the same number for every row. Run i
    /// ends before candidate run_ends[m * runs + i]; candidate p of it is column p + run_shifts[m * runs +
    /// i]. There are no candidates after the last end. Column c is token row_tokens[column_rows[c]]. Ids are
    /// tokens, and ties go to the lower token. Sums follow the order of candidates, not of columns.
    const std::int32_t* run_ends = nullptr;
    const std::int32_t* run_shifts = nullptr;
    int runs = 0;
    const std::int32_t* column_rows = nullptr;
    const std::int32_t* row_tokens = nullptr;
};
inline constexpr int topk_chunk = 4096;  ///< columns per block; partial sums follow these boundaries
inline constexpr int max_topk = 64;
/// Whether one block can merge the candidates of all chunks.
constexpr bool can_topk(int support, int k) {
    return k >= 1 && k <= max_topk && (support + topk_chunk - 1) / topk_chunk * k <= topk_chunk;
}
/// Bytes of scratch memory for TopKOp.
constexpr std::size_t topk_scratch_bytes(int rows, int support, int k) {
    const auto chunks = static_cast<std::size_t>((support + topk_chunk - 1) / topk_chunk);
    return static_cast<std::size_t>(rows) *
           (chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8) + sizeof(std::uint32_t));
}

/// A matmul fused with the selection of its k largest outputs; the logits are not written. The logits equal
/// MatmulOp's, bit for bit. The k best of the first `support` outputs of each row, at least one, are ordered
/// as in TopKOp; logsumexp covers all of the first `support`.
struct MatmulTopKOp {
    DeviceMatrix weights;
    Activations x;  ///< [rows, weights.stride]
    int rows = 0, support = 0, k = 0;
    const float* bias = nullptr;  ///< [n] or null
    std::int32_t* ids = nullptr;  ///< [rows, k]
    float* values = nullptr;      ///< [rows, k]
    float* logsumexp = nullptr;   ///< [rows]
    void* scratch = nullptr;      ///< matmul_topk_scratch_bytes() bytes
};
inline constexpr int matmul_topk_chunk = 256;  ///< most outputs per block
inline constexpr int min_matmul_topk_chunk = 16;
/// Outputs per block: as many as leave two blocks for each of 120 processors. Partial sums follow these
/// boundaries, so they may not depend on the number of rows.
constexpr int matmul_topk_outputs(int support) {
    int outputs = matmul_topk_chunk;
    while (outputs > min_matmul_topk_chunk && support < 240 * outputs) outputs /= 2;
    return outputs;
}
/// Bytes of scratch memory for MatmulTopKOp.
constexpr std::size_t matmul_topk_scratch_bytes(int rows, int support, int k) {
    const int outputs = matmul_topk_outputs(support);
    const auto chunks = static_cast<std::size_t>((support + outputs - 1) / outputs);
    return static_cast<std::size_t>(rows) * chunks * (2 * sizeof(float) + static_cast<std::size_t>(k) * 8);
}

/// Selects the k largest of each row, in column order. Ties go to the lower column; NaN is the smallest.
struct TopKSetOp {
    const float* x = nullptr;
    std::int64_t stride = 0;
    int rows = 0, columns = 0, k = 0;
    std::int32_t* ids = nullptr;  ///< [rows, k], k <= columns
};

/// A router's product fused with the selection of its k largest columns per row. The columns equal those of
/// MatmulOp and TopKSetOp. Scores go to the scratch memory, for rows whose candidates are too close for the
/// fast selection.
struct MatmulTopKSetOp {
    DeviceMatrix weights;
    Activations x;                ///< [rows, weights.stride]
    int rows = 0, k = 0;          ///< must satisfy can_route()
    std::int32_t* ids = nullptr;  ///< [rows, k]
    void* scratch = nullptr;      ///< router_scratch_bytes() bytes
};
inline constexpr int max_router_columns = 1 << 18;
inline constexpr int max_router_candidates = 1 << 14;
/// Number of blocks. Block b scores every such column c with c % stripes == b, at most matmul_topk_chunk.
constexpr int router_stripes(int n) {
    return (n + matmul_topk_chunk - 1) / matmul_topk_chunk;
}
/// Candidates that a block keeps per row: well above its share of the k largest.
constexpr int router_block_topk(int n, int k) {
    const int stripes = router_stripes(n), target = 2 * ((k + stripes - 1) / stripes) + 12;
    const int capacity = max_router_candidates / stripes;
    return target < matmul_topk_chunk ? (target < capacity ? target : capacity)
                                      : (matmul_topk_chunk < capacity ? matmul_topk_chunk : capacity);
}
/// Whether MatmulTopKSetOp supports these sizes.
constexpr bool can_route(int n, int k) {
    return n <= max_router_columns && k >= 1 && k <= n &&
           2 * router_stripes(n) * router_block_topk(n, k) >= 3 * k &&
           router_stripes(n) * router_block_topk(n, k) <= max_router_candidates;
}
constexpr std::size_t router_scores_bytes(int rows, int n) {
    return (static_cast<std::size_t>(rows) * static_cast<std::size_t>(n) * sizeof(float) + 255) / 256 * 256;
}
/// Bytes of scratch memory for MatmulTopKSetOp.
constexpr std::size_t router_scratch_bytes(int rows, int n, int k) {
    return router_scores_bytes(rows, n) +
           static_cast<std::size_t>(rows) *
               static_cast<std::size_t>(router_stripes(n) * router_block_topk(n, k)) * 8;
}

}  // namespace draftscope::kernels
