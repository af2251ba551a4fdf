#include "engine/formats/hf_rope.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace draftscope {
namespace {

struct Llama3Scaling {
    double factor = 0, low = 0, high = 0, original_context = 0;
};

/// Converts llama3 scaling to divisors of the base frequencies: 1 for short wavelengths, `factor` for long
/// ones, and a blend of both frequencies in between.
std::vector<float> llama3_divisors(const Llama3Scaling& scaling, double theta, int head_dim) {
    std::vector<float> out;
    for (int j = 0; j < head_dim / 2; ++j) {
        const double frequency = std::pow(theta, -2.0 * j / head_dim);
        const double waves = scaling.original_context * frequency / (2 * std::numbers::pi);
        double scaled = frequency;
        if (waves < scaling.low) {
            scaled = frequency / scaling.factor;
        } else if (waves <= scaling.high) {
            const double share = (waves - scaling.low) / (scaling.high - scaling.low);
            scaled = (1 - share) * frequency / scaling.factor + share * frequency;
        }
        out.push_back(static_cast<float>(frequency / scaled));
    }
    return out;
}

Result<std::vector<float>> read_llama3(const JsonFile& scaling, double theta, int head_dim) {
    Llama3Scaling values;
    const auto read = [&](const char* field, double& out) -> Status {
        DS_ASSIGN(const auto value, scaling.positive(field));
        if (!value) return scaling.field_error(field, "a positive number");
        out = *value;
        return {};
    };
    DS_TRY(read("factor", values.factor));
    DS_TRY(read("low_freq_factor", values.low));
    DS_TRY(read("high_freq_factor", values.high));
    DS_TRY(read("original_max_position_embeddings", values.original_context));
    if (values.high <= values.low)
        return scaling.field_error("high_freq_factor", "more than low_freq_factor");
    return llama3_divisors(values, theta, head_dim);
}

/// Dividing positions by a factor equals dividing the frequencies by it.
Result<std::vector<float>> read_linear(const JsonFile& scaling, int head_dim) {
    DS_ASSIGN(const auto factor, scaling.positive("factor"));
    if (!factor) return scaling.field_error("factor", "a positive number");
    return std::vector<float>(head_dim / 2, static_cast<float>(*factor));
}

}  // namespace

Result<HfRope> read_hf_rope(const JsonFile& file, int head_dim) {
    DS_ASSIGN(auto scaling, file.object("rope_scaling"));
    DS_ASSIGN(auto theta, file.positive("rope_theta"));
    DS_ASSIGN(auto parameters, file.object("rope_parameters"));
    if (parameters) {
        DS_ASSIGN(const auto inner, parameters->positive("rope_theta"));
        if (inner) theta = inner;
        scaling = std::move(parameters);
    }
    HfRope out;
    out.theta = static_cast<float>(theta.value_or(10000.0));
    if (!scaling) return out;
    const char* field = scaling->find("rope_type") != nullptr ? "rope_type" : "type";
    DS_ASSIGN(const auto type, scaling->text(field));
    if (type.value_or("default") == "default") return out;
    if (*type == "llama3") {
        DS_ASSIGN(out.divisors, read_llama3(*scaling, out.theta, head_dim));
        return out;
    }
    if (*type == "linear") {
        DS_ASSIGN(out.divisors, read_linear(*scaling, head_dim));
        return out;
    }
    return scaling->field_error(field,
                                "'default' or 'llama3', or 'linear', the rotations this version computes");
}

}  // namespace draftscope
