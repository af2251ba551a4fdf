#pragma once

#include <cstdint>
#include <span>

namespace draftscope {

/// Cost of one drafter pass: a constant part and a part per kept token.
struct DraftPassCost {
    double fixed = 0;
    double per_token = 0;
};

/// Returns the size m in smallest .. counts.size() with the largest utility (BCL, arXiv 2603.05210). The
/// utility is alpha C(m) + (1 - alpha) (1 - F(m) / F(vocab)); ties go to the smallest m. C(m) is the share of
/// the first m of `counts` in all of them, F(m) = fixed + m per_token. Every size is tried; the paper samples
/// 100. Requires a positive sum of counts and 1 <= smallest <= counts.size().
int solve_bcl_size(std::span<const std::int64_t> counts, int smallest, int vocab, DraftPassCost cost,
                   double alpha);

}  // namespace draftscope
