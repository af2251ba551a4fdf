#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/exec.h"

namespace draftscope::fit {

/// A trained tensor and its gradient, of the same size.
struct Parameter {
    std::span<float> values;
    std::span<float> gradient;
};

/// The settings of SlimSpec's appendix A: betas, epsilon, clipping, no weight decay, cosine decay after a
/// linear warm-up. The caller sets the peak rate and the number of steps.
struct AdamOptions {
    double rate = 1e-3;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double clip = 0.5;  ///< of the gradient's norm over all parameters; 0 = none
    int steps = 1;      ///< of the complete training, for the cosine
    int warmup = 0;
    double final_share = 0.0;  ///< final rate as a share of `rate`
};

/// Adam (Kingma and Ba 2015) over a fixed list of parameters. Same bits at every thread count.
class Adam {
  public:
    explicit Adam(AdamOptions options) : options_(options) {}
    /// Updates the parameters. Returns the norm of the gradient before clipping.
    double step(kernels::Exec& exec, std::span<const Parameter> parameters);
    /// Learning rate of step `step`, counted from 0.
    double rate_at(int step) const;

  private:
    struct Moments {
        std::vector<float> first, second;
    };
    AdamOptions options_;
    std::vector<Moments> moments_;
    int done_ = 0;
};

}  // namespace draftscope::fit
