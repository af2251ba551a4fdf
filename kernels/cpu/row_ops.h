#pragma once

#include <cstdint>
#include <span>

#include "kernels/host_rows.h"

/// Ops on rows that only the CPU backend runs.
namespace draftscope::kernels {

/// The k values of topk() in ascending index order. Cheaper, because nothing is sorted. ids is [M, k].
void topk_set(ThreadPool& pool, Rows<const float> x, int k, Rows<std::int32_t> ids);

/// Columns per partial sum of exp_sums().
inline constexpr int exp_sums_block = 512;

/// Computes the partial sums of exponentials of each row that softmax sampling needs. The largest value of
/// row m, ignoring NaN, is tops[m]; 0 if there is none. The sum of exp((x[m, j] - tops[m]) * scale) over
/// block b of the columns, in a fixed order, is sums[m, b]. A NaN counts as exp(-inf). Shape of sums: [M,
/// ceil(cols / exp_sums_block)].
void exp_sums(ThreadPool& pool, Rows<const float> x, float scale, std::span<float> tops, Rows<float> sums);

/// Computes the rank of each listed value in its row. The rank ranks[i] is the number of values of row
/// rows[i] that are larger than column columns[i], or equal at a lower index (topk()'s order). Adjacent
/// entries of one row share one pass over it.
void token_ranks(ThreadPool& pool, Rows<const float> x, std::span<const std::int32_t> rows,
                 std::span<const std::int32_t> columns, std::span<std::int32_t> ranks);

/// Returns the sum of at most 512 probabilities, using independent partial sums for instruction parallelism.
double sum_probabilities(std::span<const float> probs);
/// Columns per partial sum of sum_probabilities().
inline constexpr std::size_t probability_block = 512;

/// Samples one token for each uniform without replacement, in sampling order. Writes the tokens and log q;
/// -1 after the last token with any weight.
void sample_drafts(const DraftProbs& q, std::span<const double> uniforms, DraftSampleScratch& scratch,
                   std::span<std::int32_t> ids, std::span<float> logprobs);

}  // namespace draftscope::kernels
