#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matrix.h"

/// What a draft head wants of its logits, taken while a stretch of them is in the caches: the logits are
/// never written in full. Bit-identical to matmul() followed by topk(), logsumexp() and top_set().
namespace draftscope::kernels {

/// More candidates than this go through topk().
inline constexpr int most_best = 64;

/// What is left of the logits of M rows after a pass: of each stretch of outputs its part of the logsumexp,
/// of each thread's stretches the k largest. Memory is kept between calls.
struct HeadPartials {
    int rows = 0;
    int k = 0;
    int lists = 0;                              ///< of k keys each, a row
    int parts = 0;                              ///< of the logsumexp, a row
    std::vector<std::uint64_t> keys;            ///< [rows, lists, k]
    std::vector<std::pair<float, float>> sums;  ///< [rows, parts], maximum and sum of exponentials below it
};

/// Whether head_pass() is worth its while over n logits: fewer stretches than threads can share are faster
/// written out.
bool head_pass_pays(const Exec& exec, int n, int k);

/// Takes in the first `support` outputs of x[M, K] * W^T (+ bias). k <= support, k <= most_best.
void head_pass(Exec& exec, const Matrix& weights, Rows<const float> x, int support, int k, const float* bias,
               HeadPartials& out);
/// logsumexp() of the rows [M].
void finish_logsumexp(const HeadPartials& partials, std::span<float> out);
/// topk() of the rows, [M, k]. Reorders the keys.
void finish_topk(HeadPartials& partials, Rows<std::int32_t> ids, Rows<float> values);

/// The k largest logits of each row in the order of their indices (top_set() of matmul()): a threshold from a
/// sample of the outputs keeps a superset while they pass, and the k-th largest of those decides. `logits` is
/// memory for a row that the sample misjudged, kept by the caller.
void head_top_set(Exec& exec, const Matrix& weights, Rows<const float> x, int k, Rows<std::int32_t> ids,
                  std::vector<float>& logits);

}  // namespace draftscope::kernels
