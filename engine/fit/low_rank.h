#pragma once

#include <span>
#include <vector>

#include "base/numel.h"
#include "base/result.h"
#include "engine/fit/dense.h"
#include "kernels/backend.h"

namespace draftscope::fit {

/// A fitted LM head. Low-rank: z = up (down h), SlimSpec (arXiv 2605.10453), SpecVocab's W_vocab W_down
/// (arXiv 2602.13836). `down` has one matrix for all draft levels or one per level, the last for all deeper
/// ones (SlimSpec's outlook). A level of lower rank uses the first columns of `up`. Trimmed: z = up h,
/// without `down`.
struct HeadFactors {
    std::vector<Dense> down;  ///< [r_level, d] each
    Dense up;                 ///< [V, r], r the largest rank; [V', d] of a trimmed head
    int rank() const { return up.cols; }
    int slot_for(int level) const {
        return level < static_cast<int>(down.size()) ? level : static_cast<int>(down.size()) - 1;
    }
};

/// Accumulates E[h h^T] over the inputs of a head.
class SecondMoment {
  public:
    explicit SecondMoment(int width) : width_(width), sum_(square(width)) {}
    void add(kernels::Backend& backend, Rows<const float> rows);
    int width() const { return width_; }
    std::int64_t count() const { return count_; }
    std::vector<double> mean() const;  ///< [d, d]

  private:
    static std::size_t square(int n) { return numel(n, n); }
    int width_;
    std::int64_t count_ = 0;
    std::vector<double> sum_;
    Dense product_;
};

/// The factors of rank r that minimise E |W h - up down h|^2 (activation-weighted SVD). The second moment of
/// h is `moment` [d, d]. With C = moment and V_r the first r eigenvectors of C^1/2 W^T W C^1/2, up = W C^1/2
/// V_r and down = V_r^T C^-1/2. With the identity as moment it is the plain truncated SVD. Directions in
/// which no h varies are ignored. The outputs of `down` have variance 1. 1 <= rank <= d, else bad_input.
/// `ranks` has one rank for all levels or one per level; their leading rows are shared.
///
/// With `importance` [V], the sum over tokens of importance times squared error is minimised. Softmax ignores
/// a common offset of a row's logits, so the weighted mean row is subtracted from W.
Result<HeadFactors> low_rank_factors(kernels::Backend& backend, Rows<const float> weights,
                                     std::span<const double> moment, const std::vector<int>& ranks,
                                     std::span<const double> importance = {});

/// The identity, [d, d].
std::vector<double> identity_moment(int width);

}  // namespace draftscope::fit
