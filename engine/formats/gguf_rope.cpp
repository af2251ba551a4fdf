#include <cmath>

#include "engine/formats/rope_config.h"

namespace draftscope {
namespace {

/// Reads the rotation's factor; older converters call it scale_linear. llama.cpp counts 0 as absent.
Result<std::optional<double>> read_factor(const GgufFile& file, const GgufKeys& rope) {
    for (const char* field : {"scaling.factor", "scale_linear"}) {
        DS_ASSIGN(const auto value, file.number(rope.key(field)));
        if (!value || *value == 0) continue;
        return rope.positive(field);
    }
    return std::optional<double>();
}

Status read_divisors(const GgufFile& file, std::span<const std::string_view> names, int head_dim,
                     std::vector<float>& out) {
    for (const std::string_view name : names) {
        const TensorInfo* tensor = file.tensors().find(name);
        if (tensor == nullptr) continue;
        if (tensor->shape != std::vector<std::int64_t>{head_dim / 2})
            return bad_input("{}: tensor '{}' has {} values, expected {}", file.path(), name, tensor->cols(),
                             head_dim / 2);
        out.resize(head_dim / 2);
        file.tensors().read_row(*tensor, 0, out.data());
        for (const float divisor : out) {
            if (!std::isfinite(divisor) || divisor <= 0.0f)
                return bad_input("{}: tensor '{}' contains {}, expected positive divisors", file.path(), name,
                                 divisor);
        }
        return {};
    }
    return {};
}

Result<YarnScaling> read_yarn(const GgufFile& file, const GgufKeys& rope, double factor,
                              std::int64_t context) {
    YarnScaling out;
    out.factor = factor;
    DS_ASSIGN(const auto original, file.integer(rope.key("scaling.original_context_length")));
    out.original_context = static_cast<double>(original.value_or(context));
    if (out.original_context < 1)
        return bad_input("{}: metadata '{}' is {}, expected a number of positions", file.path(),
                         rope.key("scaling.original_context_length"), out.original_context);
    DS_ASSIGN(const auto fast, rope.positive("scaling.yarn_beta_fast"));
    DS_ASSIGN(const auto slow, rope.positive("scaling.yarn_beta_slow"));
    out.beta_fast = fast.value_or(out.beta_fast);
    out.beta_slow = slow.value_or(out.beta_slow);
    return out;
}

}  // namespace

Result<RopeConfig> read_gguf_rope(const GgufFile& file, const std::string& prefix, int head_dim,
                                  std::int64_t context, std::span<const std::string_view> tensors) {
    const GgufKeys rope(file, prefix + ".rope");
    RopeConfig out;
    DS_ASSIGN(const auto theta, rope.positive("freq_base"));
    if (theta) out.theta = static_cast<float>(*theta);
    DS_TRY(read_divisors(file, tensors, head_dim, out.divisors));
    DS_ASSIGN(const auto scale, rope.positive("scaling.attn_factor"));
    DS_ASSIGN(const auto yarn_scale, rope.positive("scaling.yarn_attn_factor"));
    out.scale = static_cast<float>(scale.value_or(1) * yarn_scale.value_or(1));
    DS_ASSIGN(const auto found, file.text(rope.key("scaling.type")));
    DS_ASSIGN(const auto factor, read_factor(file, rope));
    // As in llama.cpp, a factor without a type is linear.
    const std::string type = found.value_or("linear");
    if (type != "none" && type != "linear" && type != "yarn")
        return bad_input(
            "{}: metadata '{}' is '{}', expected none, linear or yarn, the rotations that this version "
            "computes",
            file.path(), rope.key("scaling.type"), printable(type));
    if (type == "none") return out;
    std::vector<float> divisors(head_dim / 2, static_cast<float>(factor.value_or(1)));
    if (type == "yarn") {
        if (out.theta <= 1)
            return bad_input("{}: metadata '{}' is {}, expected more than 1 with yarn", file.path(),
                             rope.key("freq_base"), out.theta);
        DS_ASSIGN(const YarnScaling yarn, read_yarn(file, rope, factor.value_or(1), context));
        divisors = yarn_divisors(yarn, out.theta, head_dim);
        out.scale *= static_cast<float>(1 + 0.1 * std::log(yarn.factor));
    } else if (!factor) {
        return out;
    }
    if (out.divisors.empty()) out.divisors.assign(head_dim / 2, 1);
    for (std::size_t j = 0; j < divisors.size(); ++j) out.divisors[j] *= divisors[j];
    return out;
}

}  // namespace draftscope
