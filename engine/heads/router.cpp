#include "engine/heads/router.h"

#include "base/numel.h"

namespace draftscope {

Result<ClusterRouter> ClusterRouter::load(kernels::Backend& backend, const HeadWeights& weights,
                                          const HeadArtefact& artefact, int inputs, int outputs) {
    ClusterRouter router;
    const kernels::Precision precision = weights.lm_head->precision();
    DS_ASSIGN(router.in_, artefact.matrix(backend, precision, "router.in.weight", -1, inputs));
    DS_ASSIGN(router.out_, artefact.matrix(backend, precision, "router.out.weight", outputs, router.in_.n()));
    DS_ASSIGN(router.in_bias_, artefact.vector_or_zeros("router.in.bias", router.in_.n()));
    DS_ASSIGN(router.out_bias_, artefact.vector_or_zeros("router.out.bias", outputs));
    const auto named = artefact.info().parameters.find("activation");
    const std::string activation = named == artefact.info().parameters.end() ? "silu" : named->second;
    if (activation != "silu" && activation != "relu" && activation != "none")
        return bad_input("{}: parameter activation is \"{}\", expected silu, relu or none", artefact.path(),
                         activation);
    router.activation_ = activation == "silu"   ? kernels::Activation::silu
                         : activation == "relu" ? kernels::Activation::relu
                                                : kernels::Activation::none;
    return router;
}

double ClusterRouter::flops_per_row() const {
    return 2.0 * in_.n() * in_.k() + 2.0 * out_.n() * out_.k();
}

bool ClusterRouter::reserve(kernels::Backend& backend, int rows) {
    return (!d_in_bias_.empty() || d_in_bias_.upload_exact(backend, in_bias_)) &&
           (!d_out_bias_.empty() || d_out_bias_.upload_exact(backend, out_bias_)) &&
           x_.reserve(backend, numel(rows, kernels::padded_columns(in_.k()))) &&
           hidden_.reserve(backend, in_, rows) && scores_.resize_at_least(backend, numel(rows, out_.n()));
}

void ClusterRouter::enqueue_best(kernels::Backend& backend, kernels::Activations x, int rows, int count,
                                 std::int32_t* best) {
    kernels::MatmulOp product;
    product.weights = out_.device_matrix();
    product.x = hidden_.enqueue(backend, in_, x, rows, d_in_bias_.data(), activation_);
    product.rows = rows;
    product.y = scores_.data();
    product.y_stride = out_.n();
    product.bias = d_out_bias_.data();
    backend.matmul(product);
    backend.topk_set({scores_.data(), out_.n(), rows, out_.n(), count, best});
}

void ClusterRouter::enqueue_best(kernels::Backend& backend, const float* x, int rows, int count,
                                 std::int32_t* best) {
    backend.to_activations({x, in_.k()}, rows, in_.k(), x_, in_.device_matrix().stride);
    enqueue_best(backend, x_, rows, count, best);
}

}  // namespace draftscope
