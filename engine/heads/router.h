#pragma once

#include <string>
#include <vector>

#include "engine/heads/low_rank.h"

namespace draftscope {

/// The small network of CORAL and DynaSpec that scores groups of tokens: W_out act(W_in x + b_in) + b_out.
class ClusterRouter {
  public:
    /// Loads `router.in.*` and `router.out.*`: `inputs` columns, `outputs` scores. The artefact's parameter
    /// `activation` is silu (our default), relu or none.
    static Result<ClusterRouter> load(kernels::Backend& backend, const HeadWeights& weights,
                                      const HeadArtefact& artefact, int inputs, int outputs);
    std::uint64_t bytes() const { return in_.bytes() + out_.bytes(); }
    double flops_per_row() const;
    /// Uploads the biases and reserves memory for up to `rows` rows. Returns false if memory runs out.
    bool reserve(kernels::Backend& backend, int rows);
    /// Enqueues the selection of the `count` best outputs per row, ascending, [rows, count]. `x` is [rows,
    /// stride of W_in].
    void enqueue_best(kernels::Backend& backend, kernels::Activations x, int rows, int count,
                      std::int32_t* best);
    /// The same for f32 rows, [rows, inputs].
    void enqueue_best(kernels::Backend& backend, const float* x, int rows, int count, std::int32_t* best);

  private:
    kernels::Matrix in_, out_;
    std::vector<float> in_bias_, out_bias_;
    kernels::Activation activation_ = kernels::Activation::silu;
    kernels::DeviceArray<float> d_in_bias_, d_out_bias_, scores_;
    kernels::ActivationBuffer x_;
    DownProjection hidden_;
};

}  // namespace draftscope
