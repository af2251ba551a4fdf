#include "tests/support/twin_device.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cpu/matmul/layout.h"
#include "tests/support/twin_checks.h"

namespace draftscope::testing {
namespace {

using namespace kernels;

/// Makes an address that no user-space access reaches.
constexpr std::uintptr_t mark = std::uintptr_t{1} << 60;

}  // namespace

float TwinDevice::value_of(half_t half) const {
    return dtype() == Float16Kind::f16 ? f16_to_float(half) : from_bf16(half);
}
half_t TwinDevice::to_half(float value) const {
    return dtype() == Float16Kind::f16 ? float_to_f16(value) : to_bf16(value);
}

TwinDevice::TwinDevice(std::size_t memory_bytes) : memory_(memory_bytes) {
    info_.name = "twin of a device on this CPU";
    info_.architecture = "twin";
    info_.processors = 1;
    info_.memory_bytes = memory_bytes;
}

TwinDevice::~TwinDevice() {
    drop_workspace();
    if (!blocks_.empty()) reject("end", "memory was not given back");
}

void* TwinDevice::allocate(std::size_t bytes) {
    if (in_replay_) reject("allocate", "inside a graph");
    if (used_ + bytes > memory_ || allocations_left_ == 0) return nullptr;
    --allocations_left_;
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(256, rounded));
    std::memset(data, 0, rounded);
    used_ += bytes;
    blocks_[data] = bytes;
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) | mark);
}

void TwinDevice::release(void* data) {
    join_side_stream();  // memory goes when nothing uses it any more
    auto* real = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(data) & ~mark);
    const auto found = blocks_.find(real);
    if (found == blocks_.end()) reject("release", "not an allocation");
    used_ -= found->second;
    blocks_.erase(found);
    std::free(real);
}

std::byte* TwinDevice::inside(const void* address, std::size_t bytes, const char* what) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    if ((number & mark) == 0) reject(what, address == nullptr ? "null address" : "an address of the host");
    auto* real = reinterpret_cast<std::byte*>(number & ~mark);
    auto after = blocks_.upper_bound(real);
    if (after == blocks_.begin()) reject(what, "outside every allocation");
    const auto& [start, length] = *std::prev(after);
    if (real + bytes > start + length) reject(what, "past the end of an allocation");
    return real;
}

void TwinDevice::upload(void* to, const void* from, std::size_t bytes) {
    if (in_replay_) reject("upload", "inside a graph");
    if (bytes > 0) std::memcpy(inside(to, bytes, "upload"), from, bytes);
}
void TwinDevice::download(void* to, const void* from, std::size_t bytes) {
    if (in_replay_) reject("download", "inside a graph");
    ++downloads_;
    if (bytes == 0) return;
    const std::byte* data = inside(from, bytes, "download");
    downloads_under_way_.push_back({to, {data, data + bytes}});
}
void TwinDevice::copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memmove(inside(to, bytes, "copy to"), inside(from, bytes, "copy from"), bytes);
}
Status TwinDevice::synchronize() {
    if (in_replay_) reject("finish", "inside a graph");
    ++finishes_;
    for (const auto& [to, bytes] : downloads_under_way_) std::memcpy(to, bytes.data(), bytes.size());
    downloads_under_way_.clear();
    return failure();
}

void TwinDevice::graph(std::uint64_t key, FunctionRef<void()> work) {
    if (key == 0) reject("replay", "key 0");
    in_replay_ = true;
    asked_.clear();
    work();
    in_replay_ = false;
    // A graph made of the first pass would run that pass again.
    const auto [known, fresh] = graphs_.emplace(key, asked_);
    if (!fresh && known->second != asked_) {
        std::fprintf(stderr, "asked before:\n%s\nasked now:\n%s\n", known->second.c_str(), asked_.c_str());
        reject("replay", "a key whose ops are others than before");
    }
    if (!fresh) ++replayed_;
}

void TwinDevice::run(const MatmulOp& op) {
    note("matmul", op.weights.data, op.weights.n, op.x, op.rows, op.y, op.y_stride, op.bias, op.accumulate,
         op.chosen, op.chosen_count, op.max_chosen);
    const DeviceMatrix& w = op.weights;
    const int outputs = op.chosen == nullptr ? w.n : *at(op.chosen_count, 1, "chosen_count");
    if (op.chosen != nullptr && outputs > op.max_chosen) reject("matmul", "more chosen than said");
    const std::int32_t* chosen = op.chosen == nullptr ? nullptr : at(op.chosen, size(outputs), "chosen");
    const half_t* all = at(w.data, size(w.n) * size(w.stride), "matmul weights");
    std::vector<double> x(size(w.stride));
    const bool theirs = library_rows_ > 0 && op.rows >= library_rows_ && op.chosen == nullptr;
    if (theirs) ++library_products_;
    for (int m = 0; m < op.rows; ++m) {
        const half_t* from = row(op.x, std::int64_t{m} * w.stride, size(w.stride), "matmul x");
        for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<double>(value_of(from[k]));
        float* y = row(op.y, m * op.y_stride, size(outputs), "matmul y");
        for (int c = 0; c < outputs; ++c) {
            const int n = chosen == nullptr ? c : chosen[c];
            if (n < 0 || n >= w.n) reject("matmul", "chosen output out of range");
            const half_t* weights = all + size(n) * x.size();
            double sum = 0;
            for (std::size_t k = 0; k < x.size(); ++k)
                sum += x[k] * static_cast<double>(value_of(weights[k]));
            if (theirs) {
                float other = 0;
                for (std::size_t k = x.size(); k-- > 0;)
                    other += static_cast<float>(x[k]) * value_of(weights[k]);
                sum = static_cast<double>(other);
            }
            if (op.bias != nullptr) sum += static_cast<double>(at(op.bias, size(w.n), "bias")[n]);
            y[c] = op.accumulate ? y[c] + static_cast<float>(sum) : static_cast<float>(sum);
        }
    }
}

void TwinDevice::run(const RmsNormOp& op) {
    note("rms_norm", op.x, op.x_stride, op.rows, op.groups, op.width, op.weight, op.y, op.y_stride, op.add,
         op.half, op.half_stride, op.half_columns);
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
            if (op.half == nullptr) continue;
            half_t* half =
                row(op.half, std::int64_t{m} * op.half_stride + first, size(op.width), "norm half");
            std::transform(out.begin(), out.end(), half, [this](float v) { return to_half(v); });
        }
        for (int c = op.groups * op.width; op.half != nullptr && c < op.half_columns; ++c)
            *row(op.half, std::int64_t{m} * op.half_stride + c, 1, "norm padding") = 0;
    }
}

namespace {

float through(Activation activation, float v) {
    if (activation == Activation::silu) return v / (1.0f + std::exp(-v));
    return activation == Activation::relu ? std::max(v, 0.0f) : v;
}

}  // namespace

void TwinDevice::run(const CastOp& op) {
    note("round", op.x, op.x_stride, op.rows, op.cols, op.y, op.y_stride, op.y_columns, op.activation);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, size(op.cols), "round x");
        half_t* y = row(op.y, m * op.y_stride, size(op.y_columns), "round y");
        std::transform(x, x + op.cols, y, [&](float v) { return to_half(through(op.activation, v)); });
        std::fill(y + op.cols, y + op.y_columns, half_t{0});
    }
}

void TwinDevice::run(const AddOp& op) {
    note("add", op.x, op.x_stride, op.rows, op.cols, op.activation, op.base, op.base_stride, op.y,
         op.y_stride);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, size(op.cols), "add x");
        const half_t* base =
            op.base == nullptr ? nullptr : row(op.base, m * op.base_stride, size(op.cols), "add base");
        float* y = row(op.y, m * op.y_stride, size(op.cols), "add y");
        for (int i = 0; i < op.cols; ++i)
            y[i] = (base == nullptr ? y[i] : value_of(base[i])) + through(op.activation, x[i]);
    }
}

void TwinDevice::run(const SiluMulOp& op) {
    note("silu_mul", op.x, op.x_stride, op.rows, op.width, op.y, op.y_stride);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.x_stride, 2 * size(op.width), "silu x");
        half_t* y = row(op.y, std::int64_t{m} * op.y_stride, size(op.y_stride), "silu y");
        for (int i = 0; i < op.width; ++i) y[i] = to_half(x[i] / (1.0f + std::exp(-x[i])) * x[op.width + i]);
        std::fill(y + op.width, y + op.y_stride, half_t{0});
    }
}

void TwinDevice::run(const RopeStoreOp& op) {
    note("rope_store", op.qkv, op.stride, op.rows, op.cos, op.sin, op.places.caches, op.places.slot,
         op.places.position, op.layer);
    const AttentionHeads& s = op.shape;
    const int half = s.head_dim / 2, kv = s.kv_heads * s.head_dim;
    const std::int64_t width = std::int64_t{s.heads} * s.head_dim + 2 * kv;
    for (int m = 0; m < op.rows; ++m) {
        float* x = row(op.qkv, m * op.stride, size(width), "rope qkv");
        const int position = *row(op.places.position, m, 1, "position");
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
        const KvPlanes cache =
            *row(op.places.caches, *row(op.places.sequence, m, 1, "sequence"), 1, "caches");
        const std::int64_t to = std::int64_t{*row(op.places.slot, m, 1, "slot")} * kv;
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
    note("attention", op.q, op.q_stride, op.first_row, op.rows, op.tiles, op.places.tiles,
         op.places.ancestor_slots, op.places.prefix, op.layer, op.blocks, op.partial, op.y, op.y_stride);
    const AttentionHeads& s = op.shape;
    const int kv = s.kv_heads * s.head_dim, group = s.heads / s.kv_heads;
    (void)at(op.partial, size(std::int64_t{op.rows} * s.heads * op.blocks * (s.head_dim + 2)), "partial");
    const int end = op.first_row + op.rows;
    std::vector<int> seen(size(op.rows), 0);
    for (int t = 0; t < op.tiles; ++t) {
        const std::int32_t* tile = row(op.places.tiles, 2 * std::int64_t{t}, 2, "tiles");
        if (tile[1] < 1 || tile[1] > attention_tile_rows(s)) reject("attention", "tile too tall");
        for (int m = tile[0]; m < tile[0] + tile[1]; ++m) {
            if (*row(op.places.sequence, m, 1, "sequence") !=
                *row(op.places.sequence, tile[0], 1, "sequence"))
                reject("attention", "a tile of two sequences");
            if (m < op.first_row || m >= end) reject("attention", "a tile past the rows");
            ++seen[size(m - op.first_row)];
        }
    }
    for (int m = op.first_row; m < end; ++m) {
        if (seen[size(m - op.first_row)] != 1) reject("attention", "a row that is in no tile, or in two");
        const KvPlanes cache =
            *row(op.places.caches, *row(op.places.sequence, m, 1, "sequence"), 1, "caches");
        const int prefix = *row(op.places.prefix, m, 1, "prefix"),
                  tail = *row(op.places.ancestor_count, m, 1, "tail");
        const int count = prefix + tail;
        if (count > op.blocks * attention_block) reject("attention", "more positions than blocks");
        std::vector<std::int64_t> slots(size(count));
        for (int p = 0; p < count; ++p)
            slots[size(p)] =
                p < prefix
                    ? p
                    : *row(op.places.ancestor_slots,
                           std::int64_t{*row(op.places.ancestor_first, m, 1, "tail_first")} + p - prefix, 1,
                           "tails");
        half_t* y = row(op.y, std::int64_t{m} * op.y_stride, size(op.y_stride), "attention y");
        const half_t* keys = at(cache.keys(op.layer), size(cache.plane), "keys");
        const half_t* values = at(cache.values(op.layer), size(cache.plane), "values");
        for (const std::int64_t slot : slots)
            if (slot < 0 || (slot + 1) * kv > cache.plane) reject("attention", "a slot outside the cache");
        std::vector<double> weights(size(count));
        for (int h = 0; h < s.heads; ++h) {
            const float* q = row(op.q, m * op.q_stride + std::int64_t{h} * s.head_dim, size(s.head_dim), "q");
            const std::int64_t column = std::int64_t{h / group} * s.head_dim;
            double most = -1e300, sum = 0;
            for (int p = 0; p < count; ++p) {
                const half_t* k = keys + slots[size(p)] * kv + column;
                double dot = 0;
                for (int i = 0; i < s.head_dim; ++i)
                    dot += static_cast<double>(q[i]) * static_cast<double>(value_of(k[i]));
                weights[size(p)] = dot * static_cast<double>(op.scale);
                most = std::max(most, weights[size(p)]);
            }
            for (double& w : weights) sum += (w = std::exp(w - most));
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

void TwinDevice::run(const TopKOp& op) {
    note("select", op.logits, op.stride, op.rows, op.support, op.k, op.ids, op.values, op.logsumexp,
         op.scratch, op.own, op.columns, op.run_ends, op.run_shifts, op.runs, op.column_rows, op.row_tokens);
    if (op.k < 1 || op.k > max_topk) reject("select", "k");
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
            } else if (op.own != nullptr) {
                const int token = *row(op.own, m * op.own_stride + i, 1, "own");
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
        const float most = order.empty() ? 0.0f : values[size(order[0])];
        for (const int i : order)
            if (values[size(i)] == values[size(i)])
                sum += std::exp(static_cast<double>(values[size(i)] - most));
        for (int i = 0; i < op.k; ++i) {
            const bool there = i < static_cast<int>(order.size());
            *row(op.ids, std::int64_t{m} * op.k + i, 1, "ids") = there ? names[size(order[size(i)])] : -1;
            *row(op.values, std::int64_t{m} * op.k + i, 1, "values") =
                there ? values[size(order[size(i)])] : lowest;
        }
        *row(op.logsumexp, m, 1, "logsumexp") = static_cast<float>(static_cast<double>(most) + std::log(sum));
    }
}

void TwinDevice::run(const MatmulTopKOp& op) {
    note("head", op.weights.data, op.weights.n, op.x, op.rows, op.support, op.k, op.bias, op.ids, op.values,
         op.logsumexp, op.scratch);
    if (op.k < 1 || op.k > max_topk || op.k > op.support || op.support > op.weights.n)
        reject("head", "k or support");
    (void)inside(op.scratch, matmul_topk_scratch_bytes(op.rows, op.support, op.k), "head scratch");
    const auto stride = size(op.weights.stride);
    const half_t* all = at(op.weights.data, size(op.weights.n) * stride, "head weights");
    std::vector<float> logits(size(op.support));
    std::vector<int> order(size(op.support));
    for (int m = 0; m < op.rows; ++m) {
        const half_t* x = row(op.x, static_cast<std::int64_t>(size(m) * stride), stride, "head x");
        for (int n = 0; n < op.support; ++n) {
            double sum = op.bias == nullptr ? 0.0 : static_cast<double>(*row(op.bias, n, 1, "head bias"));
            for (std::size_t k = 0; k < stride; ++k)
                sum += static_cast<double>(value_of(x[k])) *
                       static_cast<double>(value_of(all[size(n) * stride + k]));
            logits[size(n)] = static_cast<float>(sum);
        }
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(),
                  [&](int a, int b) { return better(logits[size(a)], a, logits[size(b)], b); });
        double sum = 0;
        for (const float logit : logits)
            if (logit == logit) sum += std::exp(static_cast<double>(logit - logits[size(order[0])]));
        for (int i = 0; i < op.k; ++i) {
            *row(op.ids, std::int64_t{m} * op.k + i, 1, "head ids") = order[size(i)];
            *row(op.values, std::int64_t{m} * op.k + i, 1, "head values") = logits[size(order[size(i)])];
        }
        *row(op.logsumexp, m, 1, "head sums") =
            static_cast<float>(static_cast<double>(logits[size(order[0])]) + std::log(sum));
    }
}

void TwinDevice::run(const BeamOp& op) {
    note("beam", op.level, op.rows, op.k, op.ids, op.logits, op.logsumexp, op.shared_logits, op.tokens,
         op.pool_tokens, op.pool_logprobs, op.keep, op.first_row, op.first_slot, op.scores, op.next_tokens,
         op.next_rows, op.ancestor_slots, op.next_ancestor_slots, op.pool_scores, op.pool_parents,
         op.row_indices, op.first_index, op.static_mask, op.static_next);
    const int count = op.rows * op.k;
    if (count > max_beam || op.rows > max_topk || op.keep > std::min(count, max_topk) ||
        (op.level == 0 && op.rows != 1))
        reject("beam", "shape");
    std::vector<float> scores(size(count));
    std::vector<int> order(size(count));
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < count; ++i) {
        const int from = op.shared_logits ? i % op.k : i;
        const int id = *row(op.ids, from, 1, "beam ids");
        float logprob = *row(op.logits, from, 1, "logits");
        if (!op.sampled) logprob -= *row(op.logsumexp, op.shared_logits ? 0 : i / op.k, 1, "sums");
        const float above = op.level == 0 ? 0.0f : *row(op.scores, i / op.k, 1, "scores");
        const bool none = op.sampled && (id < 0 || above == lowest);
        logprob = logprob == logprob ? std::min(logprob, 0.0f) : lowest;
        *row(op.pool_tokens, i, 1, "pool") = none                   ? 0
                                             : op.tokens == nullptr ? id
                                                                    : *row(op.tokens, id, 1, "tokens of ids");
        *row(op.pool_logprobs, i, 1, "pool") = logprob;
        if (op.pool_parents != nullptr)
            *row(op.pool_parents, i, 1, "pool parents") =
                op.level == 0 ? -1 : *row(op.row_indices, i / op.k, 1, "row places");
        if (op.pool_rows != nullptr) *row(op.pool_rows, i, 1, "pool rows") = -1;
        float own = op.sampled ? -1.0f - static_cast<float>(i % op.k) : logprob;
        if (op.static_mask != nullptr) own = *row(op.static_mask, i, 1, "chosen") != 0 ? 0.0f : lowest;
        scores[size(i)] = none ? lowest : above + own;
    }
    if (op.pool_scores != nullptr)
        std::copy(scores.begin(), scores.end(), row(op.pool_scores, 0, scores.size(), "pool scores"));
    if (op.static_next != nullptr)
        std::copy_n(row(op.static_next, 0, size(op.keep), "chosen rows"), op.keep, order.begin());
    else if (op.level > 0 || op.sampled)
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return scores[size(a)] > scores[size(b)]; });
    // What stands in for those that are none.
    const auto kept = order.begin() + op.keep;
    const auto real = std::find_if(order.begin(), kept, [&](int i) { return scores[size(i)] != lowest; });
    std::vector<std::int32_t> ancestor_slots(size(op.rows) * size(op.level));
    if (op.level > 0 && op.keep > 0)
        std::copy_n(row(op.ancestor_slots, 0, ancestor_slots.size(), "tails"), ancestor_slots.size(),
                    ancestor_slots.begin());
    for (int b = 0; b < op.keep; ++b) {
        const int i = order[size(b)];
        const int like = op.sampled && scores[size(i)] == lowest && real != kept ? *real : i;
        const int from = like / op.k;
        *row(op.scores, b, 1, "scores") = scores[size(i)];
        *row(op.next_tokens, b, 1, "next tokens") = *row(op.pool_tokens, like, 1, "pool");
        *row(op.next_rows, b, 1, "next rows") = op.first_row + from;
        if (op.row_indices != nullptr) *row(op.row_indices, b, 1, "row places") = op.first_index + i;
        if (op.pool_rows != nullptr) *row(op.pool_rows, i, 1, "pool rows") = op.next_first_row + b;
        std::int32_t* tail =
            row(op.next_ancestor_slots, std::int64_t{b} * (op.level + 1), size(op.level + 1), "next tails");
        std::copy_n(ancestor_slots.begin() + std::ptrdiff_t{from} * op.level, op.level, tail);
        tail[op.level] = op.first_slot + b;
    }
}

void TwinDevice::run(const RerankOp& op) {
    if (in_replay_) reject("rerank", "inside a graph");
    if (!can_rerank(op.candidates, op.nodes)) reject("rerank", "shape");
    const float* scores = row(op.pool_scores, 0, size(op.candidates), "pool scores");
    const std::int32_t* parents = row(op.pool_parents, 0, size(op.candidates), "pool parents");
    std::vector<int> order(size(op.candidates)), node_of(size(op.candidates), -1);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
    order.resize(size(op.nodes - 1));
    const auto is_none = [&](int i) { return op.sampled && scores[i] == lowest; };
    if (!op.by_score) std::sort(order.begin(), order.end());
    std::stable_partition(order.begin(), order.end(), [&](int i) { return !is_none(i); });
    for (int node = 0; node < op.nodes; ++node) {
        const int place = node == 0 ? -1 : order[size(node - 1)];
        std::vector<int> tail;
        const bool none = place >= 0 && is_none(place);
        for (int at = place; at >= 0; at = none ? -1 : parents[at]) {
            if (at != place && node_of[size(at)] < 0) reject("rerank", "a child without its parent");
            tail.push_back(op.first_slot + (at == place ? node : node_of[size(at)]));
        }
        tail.push_back(op.first_slot);
        if (place >= 0) node_of[size(place)] = node;
        const int above = none ? node : place < 0 || parents[place] < 0 ? 0 : node_of[size(parents[place])];
        const int depth = static_cast<int>(tail.size()) - 1;
        const std::int64_t r = op.first_row + node;
        if (depth >= op.rows.width) reject("rerank", "deeper than its rows are wide");
        *row(op.rows.tokens, r, 1, "tokens") = place < 0 ? op.root : *row(op.pool_tokens, place, 1, "pool");
        *row(op.rows.parents, r, 1, "parents") = op.first_row + above;
        *row(op.rows.positions, r, 1, "positions") = op.first_position + depth;
        *row(op.rows.ancestor_counts, r, 1, "tail sizes") = depth + 1;
        *row(op.rows.logprobs, r, 1, "logprobs") =
            place < 0 ? 0.0f : *row(op.pool_logprobs, place, 1, "pool");
        std::copy(tail.rbegin(), tail.rend(),
                  row(op.rows.ancestor_slots, r * op.rows.width, tail.size(), "tails"));
        if (op.rows.sampled_rows != nullptr)
            *row(op.rows.sampled_rows, r, 1, "drawn rows") =
                place < 0 ? op.root_row : *row(op.pool_rows, place, 1, "pool rows");
        if (op.rows.uniforms != nullptr)
            *row(op.rows.uniforms, r, 1, "uniforms") = *row(op.uniforms, depth, 1, "uniforms by depth");
        if (op.rows.set_first == nullptr) continue;
        *row(op.rows.set_first, r, 1, "set first") = *row(op.set_first, depth, 1, "set first by depth");
        *row(op.rows.set_size, r, 1, "set size") = *row(op.set_size, depth, 1, "set size by depth");
    }
}

void TwinDevice::run(const FollowArgmaxOp& op) {
    if (in_replay_) reject("accept", "inside a graph");
    std::vector<std::int32_t> path = {0};
    for (int i = 1; i < op.nodes; ++i) {
        const int parent = op.first_row + path.back();
        if (*row(op.rows.parents, op.first_row + i, 1, "parents") == parent &&
            *row(op.rows.tokens, op.first_row + i, 1, "tokens") ==
                *row(op.choices, parent * op.choice_stride, 1, "choices"))
            path.push_back(i);
    }
    std::copy(path.begin(), path.end(), row(op.path, 0, path.size(), "path"));
    *row(op.count, 0, 1, "path's count") = static_cast<std::int32_t>(path.size());
}

void TwinDevice::run(const TopKSetOp& op) {
    note("top_set", op.x, op.stride, op.rows, op.columns, op.k, op.ids);
    for (int m = 0; m < op.rows; ++m) {
        const float* x = row(op.x, m * op.stride, size(op.columns), "top_set x");
        std::vector<int> order(size(op.columns));
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return better(x[a], a, x[b], b); });
        std::sort(order.begin(), order.begin() + op.k);
        std::copy_n(order.begin(), op.k, row(op.ids, std::int64_t{m} * op.k, size(op.k), "top_set ids"));
    }
}

void TwinDevice::run(const MatmulTopKSetOp& op) {
    note("router", op.weights.data, op.weights.n, op.x, op.rows, op.k, op.ids, op.scratch);
    const int n = op.weights.n;
    if (!can_route(n, op.k)) reject("router", "shape");
    auto* scratch = static_cast<std::byte*>(op.scratch);
    (void)inside(scratch, router_scratch_bytes(op.rows, n, op.k), "router scratch");
    MatmulOp product;
    product.weights = op.weights;
    product.x = op.x;
    product.rows = op.rows;
    product.y = reinterpret_cast<float*>(scratch);
    product.y_stride = n;
    matmul(product);
    topk_set({product.y, n, op.rows, n, op.k, op.ids});
}

void TwinDevice::run(const BucketTopMOp& op) {
    note("striped", op.scores, op.stride, op.rows, op.columns, op.buckets, op.m, op.ids);
    for (int m = 0; m < op.rows; ++m) {
        const float* scores = row(op.scores, m * op.stride, size(op.columns), "scores");
        for (int b = 0; b < op.buckets; ++b) {
            std::vector<int> mine;
            for (int c = b; c < op.columns; c += op.buckets) mine.push_back(c);
            std::sort(mine.begin(), mine.end(),
                      [&](int x, int y) { return better(scores[x], x, scores[y], y); });
            std::int32_t* ids =
                row(op.ids, (std::int64_t{m} * op.buckets + b) * op.m, size(op.m), "striped ids");
            for (int i = 0; i < op.m; ++i) ids[i] = i < static_cast<int>(mine.size()) ? mine[size(i)] : -1;
        }
    }
}

void TwinDevice::run(const UniqueTokensOp& op) {
    note("unite", op.ids, op.count, op.vocab, op.bitmap, op.tokens, op.columns, op.size);
    const std::int32_t* ids = at(op.ids, size(op.count), "union ids");
    std::uint32_t* bitmap = at(op.bitmap, size((op.vocab + 31) / 32), "bitmap");
    for (std::int64_t i = 0; i < op.count; ++i)
        if (ids[i] >= 0) bitmap[ids[i] / 32] |= std::uint32_t{1} << (ids[i] % 32);
    int found = 0;
    for (int t = 0; t < op.vocab; ++t) {
        if ((bitmap[t / 32] >> (t % 32) & 1u) == 0) continue;
        *row(op.tokens, found, 1, "union tokens") = t;
        *row(op.columns, t, 1, "union columns") = found++;
    }
    std::fill(bitmap, bitmap + (op.vocab + 31) / 32, 0u);
    *at(op.size, 1, "union size") = found;
}

void TwinDevice::run(const ClustersOp& op) {
    note("clusters", op.chosen, op.rows, op.count, op.clusters, op.first, op.sizes, op.columns,
         op.column_count, op.run_ends, op.run_shifts, op.row_tokens, op.token_columns);
    if (op.clusters < 1 || op.clusters > max_clusters) reject("clusters", "too many");
    std::set<int> all = {op.clusters - 1};
    for (std::int64_t i = 0; i < std::int64_t{op.rows} * op.count; ++i) {
        const int cluster = *row(op.chosen, i, 1, "chosen clusters");
        if (cluster < 0 || cluster >= op.clusters - 1) reject("clusters", "no such cluster");
        all.insert(cluster);
    }
    std::map<int, int> places;
    int columns = 0;
    for (const int cluster : all) {
        places[cluster] = columns;
        const int tokens = *row(op.sizes, cluster, 1, "sizes");
        const int rows = (tokens + cluster_block - 1) / cluster_block * cluster_block;
        for (int i = 0; i < rows; ++i, ++columns) {
            const int from = *row(op.first, cluster, 1, "first") + i;
            *row(op.columns, columns, 1, "columns of clusters") = from;
            if (op.token_columns != nullptr && i < tokens)
                *row(op.token_columns, *row(op.row_tokens, from, 1, "row tokens"), 1, "token columns") =
                    columns;
        }
    }
    *at(op.column_count, 1, "column count") = columns;
    for (int m = 0; m < op.rows; ++m) {
        int own = 0;
        for (int i = 0; i <= op.count; ++i) {
            const std::int64_t run = std::int64_t{m} * (op.count + 1) + i;
            const int cluster = i < op.count
                                    ? *row(op.chosen, std::int64_t{m} * op.count + i, 1, "chosen clusters")
                                    : op.clusters - 1;
            *row(op.run_shifts, run, 1, "run shifts") = places[cluster] - own;
            own += *row(op.sizes, cluster, 1, "sizes");
            *row(op.run_ends, run, 1, "run ends") = own;
        }
    }
}

void TwinDevice::run(const ClusterTokensOp& op) {
    note("cluster_tokens", op.chosen, op.count, op.clusters, op.cluster_of, op.vocab, op.bitmap, op.tokens,
         op.size, op.sets, op.stride);
    if (op.clusters < 1 || op.clusters > max_clusters) reject("cluster tokens", "too many");
    (void)at(op.bitmap, size(op.sets) * size((op.vocab + 31) / 32), "bitmap");
    for (std::int64_t set = 0; set < op.sets; ++set) {
        std::vector<bool> in(size(op.clusters), false);
        in.back() = true;
        for (int i = 0; i < op.count; ++i) {
            const int cluster = *row(op.chosen, set * op.count + i, 1, "chosen clusters");
            if (cluster < 0 || cluster >= op.clusters - 1) reject("cluster tokens", "no such cluster");
            in[size(cluster)] = true;
        }
        int found = 0;
        for (int token = 0; token < op.vocab; ++token) {
            const int cluster = *row(op.cluster_of, token, 1, "cluster of a token");
            if (cluster < 0 || !in[size(cluster)]) continue;
            if (op.sets > 1 && found == op.stride) reject("cluster tokens", "more than there is room for");
            *row(op.tokens, set * op.stride + found++, 1, "tokens of clusters") = token;
        }
        *row(op.size, set, 1, "tokens of clusters") = found;
    }
}

void TwinDevice::run(const RemapIdsOp& op) {
    note("translate", op.ids, op.count, op.d_count, op.table, op.out);
    const int count = op.d_count == nullptr ? op.count : *at(op.d_count, 1, "count there");
    if (count > op.count) reject("translate", "more ids than said");
    const std::int32_t* ids = at(op.ids, size(count), "translated ids");
    std::int32_t* out = at(op.out, size(count), "translation");
    for (int i = 0; i < count; ++i) out[i] = *row(op.table, ids[i], 1, "translation table");
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

void TwinDevice::run(const UpdateIndexSetOp& op) {
    note("list_set", op.toggled, op.count, op.range, op.bits, op.list);
    std::uint32_t* bits = at(op.bits, size((op.range + 31) / 32), "bits of a set");
    for (int i = 0; i < op.count; ++i) {
        const int number = *row(op.toggled, i, 1, "toggled");
        if (number < 0 || number >= op.range) reject("list_set", "a number outside its range");
        bits[number / 32] ^= std::uint32_t{1} << (number % 32);
    }
    int found = 0;
    for (int number = 0; number < op.range; ++number)
        if ((bits[number / 32] >> (number % 32) & 1u) != 0)
            *row(op.list, found++, 1, "list of a set") = number;
}

void TwinDevice::async_gather(const GatherOp& op, const UpdateIndexSetOp& set,
                              std::span<const std::int32_t> toggled) {
    if (in_replay_) reject("gather aside", "inside a graph");
    if (set.list != op.rows || set.count != static_cast<int>(toggled.size()))
        reject("gather aside", "rows of another set");
    ++asides_;
    (void)inside(op.to, size(op.count) * size(op.from.stride) * sizeof(half_t), "gathered aside");
    aside_.push_back([this, op, set, numbers = std::vector(toggled.begin(), toggled.end())] {
        upload(const_cast<std::int32_t*>(set.toggled), numbers.data(), numbers.size() * sizeof(std::int32_t));
        update_index_set(set);
        gather(op);
    });
}

void TwinDevice::on_side_stream(std::function<void()> work) {
    if (in_replay_) reject("work aside", "inside a graph");
    ++asides_;
    aside_.push_back(std::move(work));
}

void TwinDevice::join_side_stream() {
    for (const std::function<void()>& work : std::exchange(aside_, {})) work();
}

void TwinDevice::run(const CopyRowsOp& op) {
    note("copy_rows", op.from, op.from_stride, op.rows, op.count, op.cols, op.to, op.to_stride);
    for (int i = 0; i < op.count; ++i) {
        const std::int64_t from = op.rows == nullptr ? i : *row(op.rows, i, 1, "copied rows");
        std::memcpy(row(op.to, i * op.to_stride, size(op.cols), "copy_rows to"),
                    row(op.from, from * op.from_stride, size(op.cols), "copy_rows from"),
                    size(op.cols) * sizeof(float));
    }
}

void TwinDevice::compact(const CompactOp& op) {
    if (op.d_path != nullptr) reject("compact", "a path there beside one of the host");
    move_together(op, op.path, op.count);
}

void TwinDevice::compact(std::span<const CompactOp> ops) {
    for (const CompactOp& op : ops) {
        if (op.planes != ops.front().planes || op.width != ops.front().width) reject("compact", "shapes");
        const int count = *at(op.d_count, 1, "path's count");
        if (count > op.count) reject("compact", "a longer path than said");
        move_together(op, at(op.d_path, size(count), "path there"), count);
    }
}

void TwinDevice::move_together(const CompactOp& op, const std::int32_t* path, int count) {
    if (in_replay_) reject("compact", "inside a graph");
    for (int plane = 0; plane < op.planes; ++plane) {
        half_t* data = row(op.cache.data, plane * op.cache.plane, size(op.cache.plane), "compacted plane");
        for (int i = 0; i < count; ++i) {
            const std::int64_t from = op.first + path[i], to = op.first + i;
            if ((from + 1) * op.width > op.cache.plane || path[i] < i) reject("compact", "path");
            std::memmove(data + to * op.width, data + from * op.width, size(op.width) * sizeof(half_t));
        }
    }
}

}  // namespace draftscope::testing
