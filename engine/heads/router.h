#pragma once

#include <string>
#include <vector>

#include "engine/heads/artefact.h"
#include "kernels/head_router.h"

namespace draftscope {

/// The small network of CORAL and DynaSpec that scores groups of tokens: W_out act(W_in x + b_in) + b_out.
class ClusterRouter {
  public:
    /// Loads `router.in.*` and `router.out.*`: `inputs` columns, `outputs` scores. The artefact's parameter
    /// `activation` is silu (our default), relu or none.
    static Result<ClusterRouter> load(kernels::Exec& exec, const HeadWeights& weights,
                                      const HeadArtefact& artefact, int inputs, int outputs);
    int width() const { return in_.n(); }
    std::uint64_t bytes() const { return in_.bytes() + out_.bytes(); }
    double flops_per_row() const;
    /// Computes scores [x.rows, outputs].
    void run(kernels::Exec& exec, Rows<const float> x, Rows<float> scores);
    /// Calls on the router's device. The caller holds Device::submit_mutex() and reserves memory first.
    bool reserve(int rows) { return device_.reserve(in_, out_, rows); }
    /// Enqueues the selection of the `count` best outputs per row, ascending, [rows, count]; x as in
    /// kernels::DeviceRouter.
    template <typename X>
    void enqueue_best(const X* x, int rows, int count, std::int32_t* best) {
        const float* scores = device_.enqueue(in_, out_, x, rows);
        in_.device().topk_set({scores, out_.n(), rows, out_.n(), count, best});
    }

  private:
    kernels::Matrix in_, out_;
    std::vector<float> in_bias_, out_bias_;
    kernels::Activation activation_ = kernels::Activation::silu;
    kernels::DeviceRouter device_;
    std::vector<float> middle_;
};

}  // namespace draftscope
