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
    const auto cells = [&](const kernels::Matrix& matrix) {
        return numel(rows, matrix.device_matrix().stride);
    };
    return (!d_in_bias_.empty() || d_in_bias_.upload_exact(backend, in_bias_)) &&
           (!d_out_bias_.empty() || d_out_bias_.upload_exact(backend, out_bias_)) &&
           x_.reserve(backend, cells(in_)) && narrow_.reserve(backend, cells(out_)) &&
           middle_.resize_at_least(backend, numel(rows, in_.n())) &&
           scores_.resize_at_least(backend, numel(rows, out_.n()));
}

void ClusterRouter::enqueue_best(kernels::Backend& backend, kernels::Activations x, int rows, int count,
                                 std::int32_t* best) {
    kernels::MatmulOp product;
    product.weights = in_.device_matrix();
    product.x = x;
    product.rows = rows;
    product.y = middle_.data();
    product.y_stride = in_.n();
    product.bias = d_in_bias_.data();
    backend.matmul(product);
    const int stride = out_.device_matrix().stride;
    backend.cast({.x = middle_.data(),
                  .x_stride = in_.n(),
                  .rows = rows,
                  .cols = in_.n(),
                  .y = narrow_,
                  .y_stride = stride,
                  .y_columns = stride,
                  .activation = activation_});
    product.weights = out_.device_matrix();
    product.x = narrow_;
    product.y = scores_.data();
    product.y_stride = out_.n();
    product.bias = d_out_bias_.data();
    backend.matmul(product);
    backend.topk_set({scores_.data(), out_.n(), rows, out_.n(), count, best});
}

void ClusterRouter::enqueue_best(kernels::Backend& backend, const float* x, int rows, int count,
                                 std::int32_t* best) {
    const int stride = in_.device_matrix().stride;
    backend.cast({.x = x,
                  .x_stride = in_.k(),
                  .rows = rows,
                  .cols = in_.k(),
                  .y = x_,
                  .y_stride = stride,
                  .y_columns = stride});
    enqueue_best(backend, x_, rows, count, best);
}

}  // namespace draftscope
