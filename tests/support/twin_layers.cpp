#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/twin_checks.h"
#include "tests/support/twin_device.h"

/// Reference implementations of the ops in kernels/ops/matmul.h, elementwise.h and attention.h.
namespace draftscope::testing {

using namespace kernels;

namespace {

float through(Activation activation, float v) {
    if (activation == Activation::silu) return v / (1.0f + std::exp(-v));
    return activation == Activation::relu ? std::max(v, 0.0f) : v;
}

}  // namespace

void TwinDevice::run(const MatmulOp& op) {
    note("matmul", op.weights.data, op.weights.n, op.x.halves, op.rows, op.y, op.y_stride, op.bias,
         op.accumulate, op.chosen, op.chosen_count, op.max_chosen);
    const DeviceMatrix& w = op.weights;
    const int outputs = op.chosen == nullptr ? w.n : *at(op.chosen_count, 1, "chosen_count");
    if (op.chosen != nullptr && outputs > op.max_chosen) reject("matmul", "more outputs than max_chosen");
    const std::int32_t* chosen = op.chosen == nullptr ? nullptr : at(op.chosen, size(outputs), "chosen");
    const half_t* all = at(w.data, size(w.n) * size(w.stride), "matmul weights");
    std::vector<double> x(size(w.stride));
    const bool theirs = library_rows_ > 0 && op.rows >= library_rows_ && op.chosen == nullptr;
    if (theirs) ++library_products_;
    for (int m = 0; m < op.rows; ++m) {
        const half_t* from = row(op.x.halves, std::int64_t{m} * w.stride, size(w.stride), "matmul x");
        for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<double>(value_of(from[k]));
        float* y = row(op.y, m * op.y_stride, size(outputs), "matmul y");
        const auto weights_of = [&](int c) {
            const int n = chosen == nullptr ? c : chosen[c];
            if (n < 0 || n >= w.n) reject("matmul", "chosen output out of range");
            return all + size(n) * x.size();
        };
        for (int first = 0; first < outputs; first += dots_together) {
            std::array<const half_t*, dots_together> weights;
            for (int i = 0; i < dots_together; ++i)
                weights[size(i)] = weights_of(std::min(first + i, outputs - 1));
            std::array<double, dots_together> sums = {};
            add_dots(x, weights, sums);
            for (int c = first; c < std::min(first + dots_together, outputs); ++c) {
                double sum = sums[size(c - first)];
                if (theirs) {
                    float other = 0;
                    for (std::size_t k = x.size(); k-- > 0;)
                        other += static_cast<float>(x[k]) * value_of(weights[size(c - first)][k]);
                    sum = static_cast<double>(other);
                }
                const int n = chosen == nullptr ? c : chosen[c];
                if (op.bias != nullptr) sum += static_cast<double>(at(op.bias, size(w.n), "bias")[n]);
                y[c] = op.accumulate ? y[c] + static_cast<float>(sum) : static_cast<float>(sum);
            }
        }
    }
}

void TwinDevice::run(const GatherOp& op) {
    note("gather", op.from.data, op.rows, op.count, op.to);
    for (int i = 0; i < op.count; ++i) {
        const int from = *row(op.rows, i, 1, "gather rows");
        if (from < 0 || from >= op.from.n) reject("gather", "row out of range");
        const std::size_t width = size(op.from.stride);
        std::memcpy(row(op.to, std::int64_t{i} * op.from.stride, width, "gather to"),
                    row(op.from.data, std::int64_t{from} * op.from.stride, width, "gather from"),
                    width * sizeof(half_t));
    }
}

void TwinDevice::run(const RmsNormOp& op) {
    note("rms_norm", op.x, op.x_stride, op.rows, op.groups, op.width, op.weight, op.y, op.y_stride, op.add,
         op.half.halves, op.half_stride, op.half_columns);
    const float* weight = at(op.weight, size(op.width), "norm weight");
    std::vector<float> out(size(op.width));
    for (int m = 0; m < op.rows; ++m) {
        for (int g = 0; g < op.groups; ++g) {
            const std::int64_t first = std::int64_t{g} * op.width;
            const float* x = row(op.x, m * op.x_stride + first, size(op.width), "norm x");
            double sum = 0;
            for (int i = 0; i < op.width; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            const float scale =
                static_cast<float>(1.0 / std::sqrt(sum / op.width + static_cast<double>(op.eps)));
            for (int i = 0; i < op.width; ++i) out[size(i)] = x[i] * scale * weight[i];
            if (op.y != nullptr) {
                float* y = row(op.y, m * op.y_stride + first, size(op.width), "norm y");
                for (int i = 0; i < op.width; ++i) y[i] = op.add ? y[i] + out[size(i)] : out[size(i)];
            }
            if (!op.half) continue;
            half_t* half =
                row(op.half.halves, std::int64_t{m} * op.half_stride + first, size(op.width), "norm half");
            std::transform(out.begin(), out.end(), half, [this](float v) { return to_half(v); });
        }
        for (int c = op.groups * op.width; op.half && c < op.half_columns; ++c)
            *row(op.half.halves, std::int64_t{m} * op.half_stride + c, 1, "norm padding") = 0;
    }
}

void TwinDevice::run(const CastOp& op) {
    note("round", op.x, op.x_stride, op.rows, op.cols, op.y.halves, op.y_stride, op.y_columns, op.activation);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, size(op.cols), "cast x");
        half_t* y = row(op.y.halves, m * op.y_stride, size(op.y_columns), "cast y");
        std::transform(x, x + op.cols, y, [&](float v) { return to_half(through(op.activation, v)); });
        std::fill(y + op.cols, y + op.y_columns, half_t{0});
    }
}

void TwinDevice::run(const AddOp& op) {
    note("add", op.x, op.x_stride, op.rows, op.cols, op.activation, op.base.halves, op.base_stride, op.y,
         op.y_stride);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, size(op.cols), "add x");
        const half_t* base =
            !op.base ? nullptr : row(op.base.halves, m * op.base_stride, size(op.cols), "add base");
        float* y = row(op.y, m * op.y_stride, size(op.cols), "add y");
        for (int i = 0; i < op.cols; ++i)
            y[i] = (base == nullptr ? y[i] : value_of(base[i])) + through(op.activation, x[i]);
    }
}

void TwinDevice::run(const SiluMulOp& op) {
    note("silu_mul", op.x, op.x_stride, op.rows, op.width, op.y.halves, op.y_stride);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, 2 * size(op.width), "silu_mul x");
        half_t* y = row(op.y.halves, std::int64_t{m} * op.y_stride, size(op.y_stride), "silu_mul y");
        for (int i = 0; i < op.width; ++i) y[i] = to_half(x[i] / (1.0f + std::exp(-x[i])) * x[op.width + i]);
        std::fill(y + op.width, y + op.y_stride, half_t{0});
    }
}

void TwinDevice::run(const CopyRowsOp& op) {
    note("copy_rows", op.from, op.from_stride, op.rows, op.count, op.cols, op.to, op.to_stride);
    for (int i = 0; i < op.count; ++i) {
        const std::int64_t from = op.rows == nullptr ? i : *row(op.rows, i, 1, "copy_rows rows");
        std::memcpy(row(op.to, i * op.to_stride, size(op.cols), "copy_rows to"),
                    row(op.from, from * op.from_stride, size(op.cols), "copy_rows from"),
                    size(op.cols) * sizeof(float));
    }
}

void TwinDevice::run(const RopeStoreOp& op) {
    note("rope_store", op.qkv, op.stride, op.rows, op.cos, op.sin, op.batch.caches, op.batch.slot,
         op.batch.position, op.layer);
    const AttentionHeads& s = op.shape;
    const int half = s.head_dim / 2, kv = s.kv_heads * s.head_dim;
    const std::int64_t width = std::int64_t{s.heads} * s.head_dim + 2 * kv;
    for (int m = 0; m < op.rows; ++m) {
        float* x = row(op.qkv, m * op.stride, size(width), "rope qkv");
        const int position = *row(op.batch.position, m, 1, "position");
        const float* cos = row(op.cos, std::int64_t{position} * half, size(half), "cos");
        const float* sin = row(op.sin, std::int64_t{position} * half, size(half), "sin");
        for (int h = 0; h < s.heads + s.kv_heads; ++h) {
            float* v = x + std::int64_t{h} * s.head_dim;
            for (int i = 0; i < half; ++i) {
                const float a = v[i], b = v[half + i];
                v[i] = a * cos[i] - b * sin[i];
                v[half + i] = b * cos[i] + a * sin[i];
            }
        }
        const KvPlanes cache = *row(op.batch.caches, *row(op.batch.sequence, m, 1, "sequence"), 1, "caches");
        const std::int64_t to = std::int64_t{*row(op.batch.slot, m, 1, "slot")} * kv;
        const float* k = x + std::int64_t{s.heads} * s.head_dim;
        if (to + kv > cache.plane) reject("rope_store", "slot past the cache");
        std::transform(k, k + kv, const_cast<half_t*>(row(cache.keys(op.layer), to, size(kv), "keys")),
                       [this](float v) { return to_half(v); });
        std::transform(k + kv, k + 2 * kv,
                       const_cast<half_t*>(row(cache.values(op.layer), to, size(kv), "values")),
                       [this](float v) { return to_half(v); });
    }
}

void TwinDevice::run(const AttentionOp& op) {
    note("attention", op.q, op.q_stride, op.first_row, op.rows, op.tiles, op.batch.tiles,
         op.batch.ancestor_slots, op.batch.prefix, op.layer, op.blocks, op.partial, op.y.halves, op.y_stride);
    const AttentionHeads& s = op.shape;
    const int kv = s.kv_heads * s.head_dim, group = s.heads / s.kv_heads;
    (void)at(op.partial, size(std::int64_t{op.rows} * s.heads * op.blocks * (s.head_dim + 2)), "partial");
    const int end = op.first_row + op.rows;
    std::vector<int> seen(size(op.rows), 0);
    for (int t = 0; t < op.tiles; ++t) {
        const std::int32_t* tile = row(op.batch.tiles, 2 * std::int64_t{t}, 2, "tiles");
        if (tile[1] < 1 || tile[1] > attention_tile_rows(s)) reject("attention", "rows of a tile");
        for (int m = tile[0]; m < tile[0] + tile[1]; ++m) {
            if (*row(op.batch.sequence, m, 1, "sequence") != *row(op.batch.sequence, tile[0], 1, "sequence"))
                reject("attention", "a tile of two sequences");
            if (m < op.first_row || m >= end) reject("attention", "a tile outside the rows");
            ++seen[size(m - op.first_row)];
        }
    }
    for (int m = op.first_row; m < end; ++m) {
        if (seen[size(m - op.first_row)] != 1) reject("attention", "a row that is in no tile, or in two");
        const KvPlanes cache = *row(op.batch.caches, *row(op.batch.sequence, m, 1, "sequence"), 1, "caches");
        const int prefix = *row(op.batch.prefix, m, 1, "prefix"),
                  tail = *row(op.batch.ancestor_count, m, 1, "ancestor_count");
        const int count = prefix + tail;
        if (count > op.blocks * attention_block) reject("attention", "more positions than blocks");
        std::vector<std::int64_t> slots(size(count));
        for (int p = 0; p < count; ++p)
            slots[size(p)] =
                p < prefix
                    ? p
                    : *row(op.batch.ancestor_slots,
                           std::int64_t{*row(op.batch.ancestor_first, m, 1, "first slot")} + p - prefix, 1,
                           "ancestor_slots");
        half_t* y = row(op.y.halves, std::int64_t{m} * op.y_stride, size(op.y_stride), "attention y");
        const half_t* keys = at(cache.keys(op.layer), size(cache.plane), "keys");
        const half_t* values = at(cache.values(op.layer), size(cache.plane), "values");
        for (const std::int64_t slot : slots)
            if (slot < 0 || (slot + 1) * kv > cache.plane) reject("attention", "a slot outside the cache");
        std::vector<double> weights(size(count));
        for (int h = 0; h < s.heads; ++h) {
            const float* q = row(op.q, m * op.q_stride + std::int64_t{h} * s.head_dim, size(s.head_dim), "q");
            const std::int64_t column = std::int64_t{h / group} * s.head_dim;
            double max_value = -1e300, sum = 0;
            for (int p = 0; p < count; ++p) {
                const half_t* k = keys + slots[size(p)] * kv + column;
                double dot = 0;
                for (int i = 0; i < s.head_dim; ++i)
                    dot += static_cast<double>(q[i]) * static_cast<double>(value_of(k[i]));
                weights[size(p)] = dot * static_cast<double>(op.scale);
                max_value = std::max(max_value, weights[size(p)]);
            }
            for (double& w : weights) sum += (w = std::exp(w - max_value));
            std::vector<double> out(size(s.head_dim), 0.0);
            for (int p = 0; p < count; ++p) {
                const half_t* v = values + slots[size(p)] * kv + column;
                for (int i = 0; i < s.head_dim; ++i)
                    out[size(i)] += weights[size(p)] / sum * static_cast<double>(value_of(v[i]));
            }
            for (int i = 0; i < s.head_dim; ++i)
                y[std::int64_t{h} * s.head_dim + i] = to_half(static_cast<float>(out[size(i)]));
        }
        std::fill(y + std::int64_t{s.heads} * s.head_dim, y + op.y_stride, half_t{0});
    }
}

}  // namespace draftscope::testing
