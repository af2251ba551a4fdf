#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/twin_checks.h"
#include "tests/support/twin_device.h"

/// Reference implementations of the ops in kernels/ops/topk.h.
namespace draftscope::testing {

using namespace kernels;

void TwinDevice::run(const TopKOp& op) {
    note("select", op.logits, op.stride, op.rows, op.support, op.k, op.ids, op.values, op.logsumexp,
         op.scratch, op.candidates, op.columns, op.run_ends, op.run_shifts, op.runs, op.column_rows,
         op.row_tokens);
    if (op.k < 1 || op.k > max_topk) reject("topk", "k");
    (void)inside(op.scratch, topk_scratch_bytes(op.rows, op.support, op.k), "select scratch");
    for (int m = 0; m < op.rows; ++m) {
        std::vector<float> values(size(op.support), lowest);
        std::vector<bool> counts(size(op.support), true);
        std::vector<int> names(size(op.support));
        std::iota(names.begin(), names.end(), 0);
        for (int i = 0; i < op.support; ++i) {
            std::int64_t column = i;
            if (op.run_ends != nullptr) {
                int run = 0;
                while (run < op.runs && *row(op.run_ends, std::int64_t{m} * op.runs + run, 1, "runs") <= i)
                    ++run;
                counts[size(i)] = run < op.runs;
                if (run == op.runs) continue;
                column = i + *row(op.run_shifts, std::int64_t{m} * op.runs + run, 1, "run shifts");
                names[size(i)] =
                    *row(op.row_tokens, *row(op.column_rows, column, 1, "column rows"), 1, "row tokens");
            } else if (op.candidates != nullptr) {
                const int token = *row(op.candidates, m * op.candidate_stride + i, 1, "own tokens");
                counts[size(i)] = token >= 0;
                if (token < 0) continue;
                names[size(i)] = token;
                if (op.columns != nullptr) column = *row(op.columns, token, 1, "columns");
            }
            values[size(i)] = *row(op.logits, m * op.stride + column, 1, "logits");
        }
        std::vector<int> order;
        for (int i = 0; i < op.support; ++i)
            if (counts[size(i)]) order.push_back(i);
        std::sort(order.begin(), order.end(), [&](int a, int b) {
            return better(values[size(a)], names[size(a)], values[size(b)], names[size(b)]);
        });
        double sum = 0;
        const float max_value = order.empty() ? 0.0f : values[size(order[0])];
        for (const int i : order)
            if (values[size(i)] == values[size(i)])
                sum += std::exp(static_cast<double>(values[size(i)] - max_value));
        for (int i = 0; i < op.k; ++i) {
            const bool valid = i < static_cast<int>(order.size());
            *row(op.ids, std::int64_t{m} * op.k + i, 1, "ids") = valid ? names[size(order[size(i)])] : -1;
            *row(op.values, std::int64_t{m} * op.k + i, 1, "values") =
                valid ? values[size(order[size(i)])] : lowest;
        }
        if (op.logsumexp == nullptr) continue;
        *row(op.logsumexp, m, 1, "logsumexp") =
            static_cast<float>(static_cast<double>(max_value) + std::log(sum));
    }
}

void TwinDevice::run(const MatmulTopKOp& op) {
    note("head", op.weights.data, op.weights.n, op.x.halves, op.rows, op.support, op.k, op.bias, op.ids,
         op.values, op.logsumexp, op.scratch);
    if (op.k < 1 || op.k > max_topk || op.support < 1 || op.support > op.weights.n)
        reject("matmul_topk", "k or support");
    (void)inside(op.scratch, matmul_topk_scratch_bytes(op.rows, op.support, op.k), "head scratch");
    const auto stride = size(op.weights.stride);
    const half_t* all = at(op.weights.data, size(op.weights.n) * stride, "matmul_topk weights");
    std::vector<double> x(stride);
    std::vector<float> logits(size(op.support));
    std::vector<int> order(size(op.support));
    for (int m = 0; m < op.rows; ++m) {
        const half_t* from =
            row(op.x.halves, static_cast<std::int64_t>(size(m) * stride), stride, "matmul_topk x");
        for (std::size_t k = 0; k < stride; ++k) x[k] = static_cast<double>(value_of(from[k]));
        for (int first = 0; first < op.support; first += dots_together) {
            std::array<const half_t*, dots_together> weights;
            std::array<double, dots_together> sums = {};
            for (int i = 0; i < dots_together; ++i) {
                const int n = std::min(first + i, op.support - 1);
                weights[size(i)] = all + size(n) * stride;
                if (op.bias != nullptr)
                    sums[size(i)] = static_cast<double>(*row(op.bias, n, 1, "matmul_topk bias"));
            }
            add_dots(x, weights, sums);
            for (int n = first; n < std::min(first + dots_together, op.support); ++n)
                logits[size(n)] = static_cast<float>(sums[size(n - first)]);
        }
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(),
                  [&](int a, int b) { return better(logits[size(a)], a, logits[size(b)], b); });
        double sum = 0;
        for (const float logit : logits)
            if (logit == logit) sum += std::exp(static_cast<double>(logit - logits[size(order[0])]));
        for (int i = 0; i < op.k; ++i) {
            const bool valid = i < op.support;
            *row(op.ids, std::int64_t{m} * op.k + i, 1, "matmul_topk ids") = valid ? order[size(i)] : -1;
            *row(op.values, std::int64_t{m} * op.k + i, 1, "matmul_topk values") =
                valid ? logits[size(order[size(i)])] : lowest;
        }
        *row(op.logsumexp, m, 1, "matmul_topk logsumexp") =
            static_cast<float>(static_cast<double>(logits[size(order[0])]) + std::log(sum));
    }
}

void TwinDevice::run(const TopKSetOp& op) {
    note("top_set", op.x, op.stride, op.rows, op.columns, op.k, op.ids);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.stride, size(op.columns), "topk_set x");
        std::vector<int> order(size(op.columns));
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return better(x[a], a, x[b], b); });
        std::sort(order.begin(), order.begin() + op.k);
        std::copy_n(order.begin(), op.k, row(op.ids, std::int64_t{m} * op.k, size(op.k), "topk_set ids"));
    }
}

void TwinDevice::run(const MatmulTopKSetOp& op) {
    note("router", op.weights.data, op.weights.n, op.x.halves, op.rows, op.k, op.ids, op.scratch);
    const int n = op.weights.n;
    if (!can_route(n, op.k)) reject("matmul_topk_set", "shape");
    auto* scratch = static_cast<std::byte*>(op.scratch);
    (void)inside(scratch, router_scratch_bytes(op.rows, n, op.k), "router scratch");
    MatmulOp product{.weights = op.weights,
                     .x = op.x,
                     .rows = op.rows,
                     .y = reinterpret_cast<float*>(scratch),
                     .y_stride = n};
    matmul(product);
    topk_set({product.y, n, op.rows, n, op.k, op.ids});
}

}  // namespace draftscope::testing
