#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/exec.h"

namespace draftscope::fit {

/// A tensor being trained and its gradient, of one size.
struct Parameter {
    std::span<float> values;
    std::span<float> gradient;
};

/// What SlimSpec's appendix A gives for its drafters: betas, epsilon, clipping, no weight decay, cosine decay
/// after a linear warm-up. Peak rate and number of steps are the caller's.
struct AdamOptions {
    double rate = 1e-3;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double clip = 0.5;  ///< of the gradient's norm over all parameters; 0 = none
    int steps = 1;      ///< of the whole training, for the cosine
    int warmup = 0;
    double final_share = 0.0;  ///< of the rate, at the end
};

/// Adam (Kingma and Ba 2015) over a fixed list of parameters. Same bits at every thread count.
class Adam {
  public:
    explicit Adam(AdamOptions options) : options_(options) {}
    /// One update with the parameters' gradients; returns the norm of the gradient before clipping.
    double step(kernels::Exec& exec, std::span<const Parameter> parameters);
    /// Rate of step `step` (from 0).
    double rate_at(int step) const;
    int steps_done() const { return done_; }

  private:
    struct Moments {
        std::vector<float> first, second;
    };
    AdamOptions options_;
    std::vector<Moments> moments_;
    int done_ = 0;
};

}  // namespace draftscope::fit
