#include "engine/fit/adam.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/numel.h"

namespace draftscope::fit {
namespace {

/// Values per task. Sums are split at these sizes, so that they do not depend on the number of threads.
constexpr std::size_t part_size = 1 << 16;

std::size_t parts_of(std::size_t size) {
    return (size + part_size - 1) / part_size;
}

double squared_norm(kernels::Exec& exec, std::span<const float> values) {
    std::vector<double> sums(parts_of(values.size()));
    exec.parallel(static_cast<int>(sums.size()), [&](int part) {
        const std::size_t p = part;
        const std::size_t end = std::min(values.size(), (p + 1) * part_size);
        // Independent partial sums: a single one would wait for every addition.
        constexpr std::size_t lanes = 8;
        double side[lanes] = {};
        std::size_t i = p * part_size;
        for (; i + lanes <= end; i += lanes)
            for (std::size_t j = 0; j < lanes; ++j)
                side[j] += static_cast<double>(values[i + j]) * static_cast<double>(values[i + j]);
        for (; i < end; ++i) side[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        sums[p] = std::accumulate(side, side + lanes, 0.0);
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

}  // namespace

double Adam::rate_at(int step) const {
    if (step < options_.warmup) return options_.rate * (step + 1) / options_.warmup;
    const int decay_steps = std::max(options_.steps - options_.warmup, 1);
    const double t = std::min(1.0, static_cast<double>(step - options_.warmup) / decay_steps);
    const double share =
        options_.final_share + (1 - options_.final_share) * 0.5 * (1 + std::cos(std::numbers::pi * t));
    return options_.rate * share;
}

double Adam::step(kernels::Exec& exec, std::span<const Parameter> parameters) {
    if (moments_.empty()) {
        for (const Parameter& p : parameters)
            moments_.push_back({std::vector<float>(p.values.size()), std::vector<float>(p.values.size())});
    }
    double squares = 0;
    for (const Parameter& p : parameters) squares += squared_norm(exec, p.gradient);
    const double norm = std::sqrt(squares);
    const bool clipped = options_.clip > 0 && norm > options_.clip;
    const auto scale = static_cast<float>(clipped ? options_.clip / norm : 1.0);
    const auto b1 = static_cast<float>(options_.beta1), b2 = static_cast<float>(options_.beta2);
    const double rate = rate_at(done_);
    ++done_;
    // The bias corrections are part of the rate and of epsilon, as section 2 of the paper notes.
    const double c1 = 1 - std::pow(options_.beta1, done_), c2 = 1 - std::pow(options_.beta2, done_);
    const auto step_size = static_cast<float>(rate * std::sqrt(c2) / c1);
    const auto epsilon = static_cast<float>(options_.epsilon * std::sqrt(c2));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        float* x = parameters[i].values.data();
        const float* g = parameters[i].gradient.data();
        float* m = moments_[i].first.data();
        float* v = moments_[i].second.data();
        const std::size_t size = parameters[i].values.size();
        exec.parallel(static_cast<int>(parts_of(size)), [&](int part) {
            const std::size_t begin = numel(part, part_size);
            const std::size_t end = std::min(size, begin + part_size);
            for (std::size_t j = begin; j < end; ++j) {
                const float gradient = g[j] * scale;
                m[j] = b1 * m[j] + (1 - b1) * gradient;
                v[j] = b2 * v[j] + (1 - b2) * gradient * gradient;
                x[j] -= step_size * m[j] / (std::sqrt(v[j]) + epsilon);
            }
        });
    }
    return norm;
}

}  // namespace draftscope::fit
