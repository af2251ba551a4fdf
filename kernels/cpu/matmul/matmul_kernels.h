#pragma once

#include <cstddef>
#include <cstdint>

/// Matmul over packed weights (kernels/cpu/matmul/layout.h), with one set of functions per instruction set.
/// Plain pointers only, as in row_kernels.h.
namespace draftscope::kernels {

/// The order in which a thread prefetches memory. First come the weights of its blocks up to `end`, then
/// those of the next product, one line at a time.
struct PrefetchState {
    const std::byte* at = nullptr;    ///< the next line to fetch
    const std::byte* end = nullptr;   ///< end of this product's weights
    const std::byte* next = nullptr;  ///< the next product's weights
    std::ptrdiff_t block = 0;         ///< bytes of a block
    /// Bytes to advance per line used. It is less than a line if several tiles use the same weights in turn.
    std::ptrdiff_t step = 64;
};

/// Activations of all M rows in the format of one kind of kernel. If M exceeds rows_padding, prepared
/// activations are readable for whole tiles of rows_padding rows.
struct MatmulWork {
    const std::byte* weights = nullptr;
    /// int8: bf16 [N/16][K/128][16]. int4: f16 [N/16][K/32][2][16], symmetric [N/16][K/32][16].
    const std::uint16_t* scales = nullptr;
    int n = 0;
    int k = 0;
    int rows = 0;              ///< M
    const float* x = nullptr;  ///< f32 and bf16: [M, x_stride]
    std::int64_t x_stride = 0;
    const std::uint32_t* x_bf16 = nullptr;  ///< bf16 dot products: [M, round_up(K, 2) / 2] pairs
    /// int8: [M][2][round_up(K, 128)], high halves, then low ones. int4: [M][round_up(K, 32)]. The AVX2 paths
    /// use 16-bit values for int8, [M][round_up(K, 128)]. Zeros after K.
    const std::int8_t* x_int8 = nullptr;
    const float* x_scale = nullptr;  ///< int8: [M, K/128], int4: [M, K/32]
    /// Start values of sums, in the shape of x_scale. For int8 they are -128 * sum of the group, since some
    /// kernels use weights as value + 128. For symmetric int4 they are -8 * sum.
    const std::int32_t* x_start = nullptr;
    const float* x_sum = nullptr;  ///< int4: [M, K/32], sum of the group times its scale, for minimums
    const float* bias = nullptr;   ///< [N] or null
    float* y = nullptr;            ///< [M, y_stride]
    std::int64_t y_stride = 0;
    PrefetchState* stream =
        nullptr;  ///< for [begin, end); null if blocks are not contiguous in the order of use
};

/// Computes output blocks (of 16) [begin, end) for all M rows.
using MatmulBlocks = void (*)(const MatmulWork& work, int begin, int end);

struct GatheredKernel;
struct ThresholdedRow;
using ThresholdMatmulBlocks = void (*)(const MatmulWork& work, int begin, int end, int first,
                                       ThresholdedRow* rows);

struct MatmulKernels {
    MatmulBlocks f32;
    MatmulBlocks bf16;
    MatmulBlocks int8;
    MatmulBlocks int4;
    MatmulBlocks int4_symmetric;
    bool bf16_activations;  ///< whether `bf16` reads x_bf16
    /// Quantises one row of k floats for int8 weights: symmetric, one scale per 128 values. q takes 2 *
    /// round_up(k, 128) bytes.
    void (*quantise)(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start);
    /// Quantises one row for int4 weights: one byte per value, one scale per 32 values.
    void (*quantise_int4)(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start,
                          float* sum);
    /// Converts one row to pairs of bf16 (null unless bf16_activations).
    void (*to_bf16)(const float* x, int k, std::uint32_t* out);
    /// Scattered rows (kernels/cpu/matmul/gathered.h); null if rows are first copied to block order.
    const GatheredKernel* gathered_int8 = nullptr;
    const GatheredKernel* gathered_bf16 = nullptr;
    /// Products of few inputs that keep outputs above bounds (kernels/cpu/matmul/threshold_matmul.h); null if
    /// outputs are written first.
    ThresholdMatmulBlocks threshold_matmul_int8 = nullptr;
    ThresholdMatmulBlocks threshold_matmul_bf16 = nullptr;
};

extern const MatmulKernels matmul_kernels_portable;
extern const MatmulKernels matmul_kernels_avx2;
extern const MatmulKernels matmul_kernels_avx_vnni;
extern const MatmulKernels matmul_kernels_avx512;
extern const MatmulKernels matmul_kernels_vnni;
extern const MatmulKernels matmul_kernels_bf16;
extern const MatmulKernels matmul_kernels_amx;

}  // namespace draftscope::kernels
