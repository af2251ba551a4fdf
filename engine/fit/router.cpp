#include "engine/fit/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/gemm.h"

namespace draftscope::fit {
namespace {

using kernels::Operand;

float sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

void add_rows(const std::vector<float>& bias, Dense& rows) {
    for (int r = 0; r < rows.rows; ++r) {
        const auto row = rows.row(r);
        for (std::size_t j = 0; j < row.size(); ++j) row[j] += bias[j];
    }
}

void sum_columns(const Dense& rows, std::vector<float>& out) {
    std::vector<double> sums(out.size());
    for (int r = 0; r < rows.rows; ++r) {
        const auto row = rows.row(r);
        for (std::size_t j = 0; j < row.size(); ++j) sums[j] += static_cast<double>(row[j]);
    }
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = static_cast<float>(sums[j]);
}

RouterWeights make_router(int inputs, int width, int groups) {
    return {Dense(width, inputs), std::vector<float>(width), Dense(groups, width),
            std::vector<float>(groups)};
}

void start(RouterWeights& router, std::uint64_t seed) {
    Rng rng(seed, 3);
    const auto fill = [&](Dense& weights) {
        const double scale = 1.0 / std::sqrt(static_cast<double>(weights.cols));
        for (float& w : weights.values()) w = static_cast<float>(rng.normal() * scale);
    };
    fill(router.in);
    fill(router.out);
}

/// Inverse root mean square of every input column, so that large dimensions do not dominate.
std::vector<float> column_scales(const SampleRows& rows, std::span<const int> which, RouterInput input) {
    Dense part;
    std::vector<double> squares;
    constexpr std::size_t chunk = 1024;
    for (std::size_t first = 0; first < which.size(); first += chunk) {
        router_inputs(rows, which.subspan(first, std::min(chunk, which.size() - first)), input, part);
        squares.resize(part.cols);
        for (int r = 0; r < part.rows; ++r) {
            const auto row = part.row(r);
            for (std::size_t j = 0; j < row.size(); ++j)
                squares[j] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
        }
    }
    std::vector<float> scales;
    for (const double sum : squares) {
        const double rms = std::sqrt(sum / static_cast<double>(which.size()));
        scales.push_back(rms > 1e-12 ? static_cast<float>(1.0 / rms) : 0.0f);
    }
    return scales;
}

void scale_columns(Dense& rows, const std::vector<float>& scales) {
    for (int r = 0; r < rows.rows; ++r) {
        const auto row = rows.row(r);
        for (std::size_t j = 0; j < row.size(); ++j) row[j] *= scales[j];
    }
}

double mean_bce(Rows<const float> scores, Rows<const float> labels) {
    double sum = 0;
    for (int r = 0; r < scores.rows; ++r) {
        const auto score = scores.row(r), label = labels.row(r);
        for (std::size_t j = 0; j < score.size(); ++j) {
            const double s = static_cast<double>(score[j]), y = static_cast<double>(label[j]);
            sum += std::max(s, 0.0) - s * y + std::log1p(std::exp(-std::abs(s)));
        }
    }
    return sum / (static_cast<double>(scores.rows) * scores.cols);
}

}  // namespace

void router_inputs(const SampleRows& rows, std::span<const int> which, RouterInput input, Dense& out) {
    const int d = rows.hidden.width();
    const bool pair = input == RouterInput::embedding_and_parent;
    out.resize(static_cast<int>(which.size()), pair ? 2 * d : d);
    const std::size_t width = d;
    for (std::size_t i = 0; i < which.size(); ++i) {
        const auto row = out.row(static_cast<int>(i));
        if (!pair) {
            rows.hidden.read(which[i], row);
            continue;
        }
        rows.embedding.read(which[i], row.first(width));
        rows.parent.read(which[i], row.last(width));
    }
}

void router_labels(const SampleRows& rows, std::span<const int> which, std::span<const std::int32_t> group_of,
                   int groups, Dense& out) {
    out.resize(static_cast<int>(which.size()), groups);
    std::fill(out.values().begin(), out.values().end(), 0.0f);
    for (std::size_t i = 0; i < which.size(); ++i) {
        const auto row = out.row(static_cast<int>(i));
        for (int c = 0; c < rows.topk; ++c) {
            const TokenId token = rows.top[numel(which[i], rows.topk) + c];
            if (token != no_token) row[group_of[token]] = 1.0f;
        }
    }
}

RouterPass::RouterPass(RouterWeights& router)
    : router_(router), gradient_(make_router(router.in.cols, router.in.rows, router.out.rows)) {}

Rows<const float> RouterPass::forward(kernels::Exec& exec, Rows<const float> inputs) {
    before_.resize(inputs.rows, router_.in.rows);
    kernels::gemm(exec, Operand::plain, inputs, Operand::transposed, router_.in.view(), before_.view());
    add_rows(router_.in_bias, before_);
    inner_.resize(inputs.rows, router_.in.rows);
    for (std::size_t i = 0; i < before_.size(); ++i) {
        const float x = before_.data[i];
        inner_.data[i] = x * sigmoid(x);
    }
    scores_.resize(inputs.rows, router_.out.rows);
    kernels::gemm(exec, Operand::plain, inner_.view(), Operand::transposed, router_.out.view(),
                  scores_.view());
    add_rows(router_.out_bias, scores_);
    return scores_.view();
}

double RouterPass::backward(kernels::Exec& exec, Rows<const float> inputs, Rows<const float> labels) {
    const double loss = mean_bce(scores_.view(), labels);
    const float share = 1.0f / (static_cast<float>(scores_.rows) * static_cast<float>(scores_.cols));
    for (int r = 0; r < scores_.rows; ++r) {
        const auto score = scores_.row(r);
        const auto label = labels.row(r);
        for (std::size_t j = 0; j < score.size(); ++j) score[j] = (sigmoid(score[j]) - label[j]) * share;
    }
    kernels::gemm(exec, Operand::transposed, scores_.view(), Operand::plain, inner_.view(),
                  gradient_.out.view());
    sum_columns(scores_, gradient_.out_bias);
    d_inner_.resize(inner_.rows, inner_.cols);
    kernels::gemm(exec, Operand::plain, scores_.view(), Operand::plain, router_.out.view(), d_inner_.view());
    for (std::size_t i = 0; i < d_inner_.size(); ++i) {
        const float x = before_.data[i], s = sigmoid(x);
        d_inner_.data[i] *= s * (1.0f + x * (1.0f - s));
    }
    kernels::gemm(exec, Operand::transposed, d_inner_.view(), Operand::plain, inputs, gradient_.in.view());
    sum_columns(d_inner_, gradient_.in_bias);
    return loss;
}

std::vector<Parameter> RouterPass::parameters() {
    return {{router_.in.values(), gradient_.in.values()},
            {router_.in_bias, gradient_.in_bias},
            {router_.out.values(), gradient_.out.values()},
            {router_.out_bias, gradient_.out_bias}};
}

Result<RouterWeights> train_router(kernels::Exec& exec, const SampleRows& rows, RouterInput input,
                                   std::span<const std::int32_t> group_of, int groups,
                                   const RouterOptions& options, const Hooks& hooks, RouterReport& report) {
    std::vector<int> train = rows.indices(false);
    const std::vector<int> held = rows.indices(true);
    if (train.empty() || held.empty()) {
        return bad_input("fit: {} drafted rows to train a router on and {} held out; record more prompts",
                         train.size(), held.size());
    }
    const int inputs = rows.hidden.width() * (input == RouterInput::hidden ? 1 : 2);
    RouterWeights router = make_router(inputs, options.width, groups);
    start(router, options.seed);
    const std::vector<float> scales = column_scales(rows, train, input);
    RouterPass pass(router);
    Dense x, y;
    const auto load = [&](std::span<const int> which) {
        router_inputs(rows, which, input, x);
        scale_columns(x, scales);
        router_labels(rows, which, group_of, groups, y);
    };
    const std::size_t size = options.batch;
    const auto held_out_bce = [&] {
        double sum = 0;
        for (std::size_t first = 0; first < held.size(); first += size) {
            const auto part = std::span(held).subspan(first, std::min(size, held.size() - first));
            load(part);
            sum += mean_bce(pass.forward(exec, x.view()), y.view()) * static_cast<double>(part.size());
        }
        return sum / static_cast<double>(held.size());
    };
    AdamOptions adam_options;
    adam_options.rate = options.rate;
    adam_options.steps = options.epochs * static_cast<int>((train.size() + size - 1) / size);
    adam_options.warmup = std::min(20, adam_options.steps / 4);
    Adam adam(adam_options);
    Rng rng(options.seed, 4);
    report.bce_before = report.bce_after = held_out_bce();
    RouterWeights best = router;
    for (int epoch = 1; epoch <= options.epochs; ++epoch) {
        for (std::size_t i = train.size(); i > 1; --i)
            std::swap(train[i - 1], train[rng.below(static_cast<std::uint32_t>(i))]);
        for (std::size_t first = 0; first < train.size(); first += size) {
            DS_TRY(hooks.check());
            load(std::span(train).subspan(first, std::min(size, train.size() - first)));
            pass.forward(exec, x.view());
            const double bce = pass.backward(exec, x.view(), y.view());
            adam.step(exec, pass.parameters());
            hooks.report(
                static_cast<double>(report.steps) / adam_options.steps,
                fmt::format("training the router, epoch {} of {}, BCE {:.4f}", epoch, options.epochs, bce));
            ++report.steps;
        }
        const double bce = held_out_bce();
        if (bce >= report.bce_after) continue;
        report.bce_after = bce;
        best = router;
    }
    scale_columns(best.in, scales);  // heads read unscaled inputs, so the weights include the scales
    return best;
}

}  // namespace draftscope::fit
