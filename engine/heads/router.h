#pragma once

#include <string>
#include <vector>

#include "engine/heads/artefact.h"

namespace draftscope {

/// The small network of CORAL and DynaSpec that scores groups of tokens: W_out act(W_in x + b_in) + b_out.
class Router {
  public:
    /// Reads `router.in.*` and `router.out.*`; `inputs` columns, `outputs` scores. The activation is
    /// parameter `activation` of the artefact: silu (our default), relu or none.
    static Result<Router> load(kernels::Exec& exec, const HeadWeights& weights, const HeadArtefact& artefact,
                               int inputs, int outputs);
    int width() const { return in_.n(); }
    std::uint64_t bytes() const { return in_.bytes() + out_.bytes(); }
    double flops_per_row() const;
    /// scores is [x.rows, outputs].
    void run(kernels::Exec& exec, Rows<const float> x, Rows<float> scores);

  private:
    enum class Activation { silu, relu, none };
    kernels::Matrix in_, out_;
    std::vector<float> in_bias_, out_bias_;
    Activation activation_ = Activation::silu;
    std::vector<float> middle_;
};

}  // namespace draftscope
