#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matrix.h"

/// Products fused with the selections that draft heads need, so that the logits are never written in full.
/// Each chunk of logits is processed while it is in cache. The results are bit-identical to matmul() followed
/// by topk(), logsumexp() and topk_set().
namespace draftscope::kernels {

/// Largest supported k; use topk() beyond it.
inline constexpr int max_fused_topk = 64;

/// Partial results of matmul_topk() for M rows. Each chunk of outputs contributes a part of the logsumexp;
/// each thread contributes the k largest of its chunks. Memory is reused between calls.
struct PartialTopK {
    int rows = 0;
    int k = 0;
    int lists = 0;                              ///< lists of k keys per row
    int parts = 0;                              ///< parts of the logsumexp per row
    std::vector<std::uint64_t> keys;            ///< [rows, lists, k]
    std::vector<std::pair<float, float>> sums;  ///< [rows, parts], maximum and sum of exponentials relative
                                                ///< to it
};

/// Whether matmul_topk() is faster than separate ops for n logits. If threads outnumber chunks, writing the
/// logits is faster.
bool prefers_fused_topk(const ThreadPool& pool, int n, int k);

/// Computes the first `support` outputs of x[M, K] * W^T (+ bias) into partial results. k <= support, k <=
/// max_fused_topk.
void matmul_topk(ThreadPool& pool, const Matrix& weights, Rows<const float> x, int support, int k,
                 const float* bias, PartialTopK& out);
/// Merges the parts into logsumexp() of the rows [M].
void finish_logsumexp(const PartialTopK& partials, std::span<float> out);
/// Merges the lists into topk() of the rows, [M, k]. Reorders the keys.
void finish_topk(PartialTopK& partials, Rows<std::int32_t> ids, Rows<float> values);

/// The k largest logits of each row in index order, as topk_set() of matmul() returns them. A threshold,
/// estimated from a sample of the outputs, keeps a superset; the k-th largest of the superset decides.
/// `logits` is scratch for rows whose estimate was wrong.
void matmul_topk_set(ThreadPool& pool, const Matrix& weights, Rows<const float> x, int k,
                     Rows<std::int32_t> ids, std::vector<float>& logits);

}  // namespace draftscope::kernels
