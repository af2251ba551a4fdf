#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/matmul/matmul_kernels.h"

/// The reference for the other paths, used on CPUs without AVX2. Each output is one sum in ascending order of
/// inputs.
namespace draftscope::kernels {
namespace {

void store_block(const MatmulWork& work, int block, int row, const float (&sum)[lanes]) {
    float* y = work.y + row * work.y_stride + block * lanes;
    const int count = std::min(lanes, work.n - block * lanes);
    for (int l = 0; l < count; ++l) {
        y[l] = work.bias == nullptr ? sum[l] : sum[l] + work.bias[block * lanes + l];
    }
}

void f32_blocks(const MatmulWork& work, int begin, int end) {
    for (int block = begin; block < end; ++block) {
        const auto* w =
            reinterpret_cast<const float*>(work.weights + block * block_bytes(Precision::f32, work.k));
        for (int row = 0; row < work.rows; ++row) {
            const float* x = work.x + row * work.x_stride;
            float sum[lanes] = {};
            for (int i = 0; i < work.k; ++i) {
                for (int l = 0; l < lanes; ++l) sum[l] += w[i * lanes + l] * x[i];
            }
            store_block(work, block, row, sum);
        }
    }
}

void bf16_blocks(const MatmulWork& work, int begin, int end) {
    for (int block = begin; block < end; ++block) {
        const auto* w = reinterpret_cast<const std::uint32_t*>(work.weights +
                                                               block * block_bytes(Precision::bf16, work.k));
        for (int row = 0; row < work.rows; ++row) {
            const float* x = work.x + row * work.x_stride;
            float sum[lanes] = {};
            for (int i = 0; i < work.k; i += 2) {
                const std::uint32_t* pair = w + i / 2 * lanes;
                const float x1 = i + 1 < work.k ? x[i + 1] : 0.0f;
                for (int l = 0; l < lanes; ++l) sum[l] += std::bit_cast<float>(pair[l] << 16) * x[i];
                for (int l = 0; l < lanes; ++l) sum[l] += std::bit_cast<float>(pair[l] & 0xffff0000u) * x1;
            }
            store_block(work, block, row, sum);
        }
    }
}

void int8_blocks(const MatmulWork& work, int begin, int end) {
    const int groups = ceil_div(work.k, quant_block);
    const int padded = round_up(work.k, int8_padding);
    const auto width = numel(groups, quant_block);
    for (int block = begin; block < end; ++block) {
        const auto* w =
            reinterpret_cast<const std::int8_t*>(work.weights + block * block_bytes(Precision::int8, work.k));
        const std::uint16_t* scales = work.scales + static_cast<std::size_t>(block) * groups * lanes;
        for (int row = 0; row < work.rows; ++row) {
            const std::int8_t* high = work.x_int8 + static_cast<std::size_t>(row) * 2 * width;
            const std::int8_t* low = high + width;
            float sum[lanes] = {};
            for (int g = 0; g < groups; ++g) {
                const float x_scale = work.x_scale[row * groups + g];
                const int first = g * quant_block;
                for (int l = 0; l < lanes; ++l) {
                    std::int32_t dot = 0;
                    for (int i = first; i < std::min(first + quant_block, padded); ++i) {
                        const std::size_t at = i / 4 * lanes * 4 + l * 4 + i % 4;
                        dot += static_cast<std::int32_t>(w[at]) * (high[i] * (1 << int8_low_bits) + low[i]);
                    }
                    sum[l] += static_cast<float>(dot) * (from_bf16(scales[g * lanes + l]) * x_scale);
                }
            }
            store_block(work, block, row, sum);
        }
    }
}

template <bool Symmetric>
void int4_blocks(const MatmulWork& work, int begin, int end) {
    const int groups = ceil_div(work.k, int4_block);
    constexpr int scale_rows = Symmetric ? 1 : 2;
    for (int block = begin; block < end; ++block) {
        const auto* w = reinterpret_cast<const std::uint8_t*>(work.weights +
                                                              block * block_bytes(Precision::int4, work.k));
        const std::uint16_t* scales =
            work.scales + static_cast<std::size_t>(block) * groups * scale_rows * lanes;
        for (int row = 0; row < work.rows; ++row) {
            const std::int8_t* x = work.x_int8 + static_cast<std::size_t>(row) * groups * int4_block;
            float sum[lanes] = {};
            for (int g = 0; g < groups; ++g, x += int4_block) {
                const float x_scale = work.x_scale[row * groups + g];
                const std::uint16_t* scale = scales + g * scale_rows * lanes;
                for (int l = 0; l < lanes; ++l) {
                    std::int32_t dot = Symmetric ? work.x_start[row * groups + g] : 0;
                    for (int i = 0; i < int4_block; ++i) {
                        const int byte = w[((g * int4_block + i) / 8 * lanes + l) * 4 + i % 4];
                        dot += (byte >> (i % 8 < 4 ? 0 : 4) & 15) * x[i];
                    }
                    sum[l] += static_cast<float>(dot) * (f16_to_float(scale[l]) * x_scale);
                    if (!Symmetric) sum[l] += f16_to_float(scale[lanes + l]) * work.x_sum[row * groups + g];
                }
            }
            store_block(work, block, row, sum);
        }
    }
}

/// Quantises the values of one group to at most `most` in size; returns the scale.
template <int Size>
float quantise_group(const float* x, int count, int max_quant, std::int32_t (&q)[Size]) {
    // Below this the reciprocal would overflow; such a block adds nothing that f32 sums would keep.
    constexpr float smallest = 1e-30f;
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
    const auto limit = static_cast<float>(max_quant);
    const float inverse = largest > smallest ? limit / largest : 0.0f;
    for (int i = 0; i < Size; ++i) {
        const float scaled = i < count ? x[i] * inverse : 0.0f;
        q[i] = static_cast<std::int32_t>(std::nearbyint(std::clamp(scaled, -limit, limit)));
    }
    return largest > smallest ? largest / limit : 0.0f;
}

void quantise_row(const float* x, int k, std::int8_t* q, float* scale, std::int32_t*) {
    const int groups = ceil_div(k, quant_block);
    for (int g = 0; g < groups; ++g) {
        const int first = g * quant_block;
        std::int32_t values[quant_block];
        scale[g] = quantise_group(x + first, std::min(quant_block, k - first), 127 << int8_low_bits, values);
        for (int i = 0; i < quant_block; ++i) {
            const int high = (values[i] + (1 << (int8_low_bits - 1))) >> int8_low_bits;
            q[first + i] = static_cast<std::int8_t>(high);
            q[groups * quant_block + first + i] =
                static_cast<std::int8_t>(values[i] - high * (1 << int8_low_bits));
        }
    }
}

void quantise_row_int4(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start, float* sum) {
    for (int g = 0; g < ceil_div(k, int4_block); ++g, q += int4_block) {
        const int first = g * int4_block;
        std::int32_t values[int4_block];
        scale[g] = quantise_group(x + first, std::min(int4_block, k - first), 127, values);
        int total = 0;
        for (int i = 0; i < int4_block; ++i) {
            q[i] = static_cast<std::int8_t>(values[i]);
            total += values[i];
        }
        start[g] = -int4_offset * total;
        sum[g] = static_cast<float>(total) * scale[g];
    }
}

}  // namespace

const MatmulKernels matmul_kernels_portable = {f32_blocks,         bf16_blocks,       int8_blocks,
                                               int4_blocks<false>, int4_blocks<true>, false,
                                               quantise_row,       quantise_row_int4, nullptr};

}  // namespace draftscope::kernels
