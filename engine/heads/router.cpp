#include "engine/heads/router.h"

#include <algorithm>
#include <cmath>

#include "base/numel.h"
#include "kernels/matmul.h"

namespace draftscope {

Result<ClusterRouter> ClusterRouter::load(kernels::Exec& exec, const HeadWeights& weights,
                                          const HeadArtefact& artefact, int inputs, int outputs) {
    ClusterRouter router;
    const kernels::Precision precision = weights.lm_head->precision();
    DS_ASSIGN(router.in_, artefact.matrix(exec, precision, "router.in.weight", -1, inputs));
    DS_ASSIGN(router.out_, artefact.matrix(exec, precision, "router.out.weight", outputs, router.in_.n()));
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
    router.device_.set(router.in_bias_, router.out_bias_, router.activation_);
    return router;
}

double ClusterRouter::flops_per_row() const {
    return 2.0 * in_.n() * in_.k() + 2.0 * out_.n() * out_.k();
}

void ClusterRouter::run(kernels::Exec& exec, Rows<const float> x, Rows<float> scores) {
    middle_.resize(numel(x.rows, in_.n()));
    const Rows<float> middle(middle_.data(), x.rows, in_.n());
    kernels::matmul(exec, in_, x, middle, in_bias_.data());
    for (float& value : middle_) {
        if (activation_ == kernels::Activation::silu) value = value / (1.0f + std::exp(-value));
        if (activation_ == kernels::Activation::relu) value = std::max(value, 0.0f);
    }
    kernels::matmul(exec, out_, middle, scores, out_bias_.data());
}

}  // namespace draftscope
