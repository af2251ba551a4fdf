#pragma once

#include <cstdint>
#include <span>

namespace draftscope {

/// What a drafter pass costs: a part that the vocabulary does not change, and one per kept token.
struct DraftPassCost {
    double fixed = 0;
    double per_token = 0;
};

/// The size m in smallest .. counts.size() with the largest utility
/// alpha C(m) + (1 - alpha) (1 - F(m) / F(vocab)), the smallest such m (BCL, arXiv 2603.05210). C(m) is the
/// share of the first m of `counts` in all of them, F(m) = fixed + m per_token. Every size is tried, where
/// the paper samples 100 of them. Needs a positive sum of counts and 1 <= smallest <= counts.size().
int solve_bcl_size(std::span<const std::int64_t> counts, int smallest, int vocab, DraftPassCost cost,
                   double alpha);

}  // namespace draftscope
