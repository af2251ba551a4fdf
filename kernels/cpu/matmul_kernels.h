#pragma once

#include <cstddef>
#include <cstdint>

/// Matmul over packed weights (kernels/cpu/layout.h), one set of functions an instruction set. Plain pointers
/// only, as in row_kernels.h.
namespace draftscope::kernels {

/// The order in which a thread reads memory, a line at a time, ahead of use: the weights of its blocks up to
/// `end`, then those of the product after this one.
struct WeightStream {
    const std::byte* at = nullptr;    ///< the next line to fetch
    const std::byte* end = nullptr;   ///< of this product's weights
    const std::byte* next = nullptr;  ///< where the reading goes on
    std::ptrdiff_t block = 0;         ///< bytes of a block
    /// Bytes to go on by for every line that is used: all of a line, or less where several tiles multiply
    /// with the same weights one after the other.
    std::ptrdiff_t step = 64;
};

/// Activations of all M rows as one kind of kernel wants them. Prepared ones are readable for whole tiles of
/// rows_padding rows where M is larger than that.
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
    /// int8: [M][2][round_up(K, 128)], high halves, then low ones. int4: [M][round_up(K, 32)].
    /// The AVX2 paths take int8's values as [M][round_up(K, 128)] of 16 bits. Zeros behind K.
    const std::int8_t* x_int8 = nullptr;
    const float* x_scale = nullptr;  ///< int8: [M, K/128], int4: [M, K/32]
    /// The same shape. int8: -128 * sum of the group, for kernels that take weights as value + 128; int4: -8
    /// times the sum, for symmetric weights.
    const std::int32_t* x_start = nullptr;
    const float* x_sum = nullptr;  ///< int4: [M, K/32], sum of the group times its scale, for minimums
    const float* bias = nullptr;   ///< [N] or null
    float* y = nullptr;            ///< [M, y_stride]
    std::int64_t y_stride = 0;
    WeightStream* stream =
        nullptr;  ///< of [begin, end); null: blocks do not lie in memory in the order of use
};

/// Computes output blocks (of 16) [begin, end) for all M rows.
using MatmulBlocks = void (*)(const MatmulWork& work, int begin, int end);

struct GatheredKernel;
struct PassingRow;
using PassingBlocks = void (*)(const MatmulWork& work, int begin, int end, int first, PassingRow* rows);

struct MatmulKernels {
    MatmulBlocks f32;
    MatmulBlocks bf16;
    MatmulBlocks int8;
    MatmulBlocks int4;
    MatmulBlocks int4_symmetric;
    bool bf16_activations;  ///< `bf16` reads x_bf16
    /// One row of k floats as int8 weights want it: symmetric, 128 values share one scale. q takes
    /// 2 * round_up(k, 128) bytes.
    void (*quantise)(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start);
    /// The same for int4 weights: one byte each, 32 share a scale.
    void (*quantise_int4)(const float* x, int k, std::int8_t* q, float* scale, std::int32_t* start,
                          float* sum);
    /// One row as pairs of bf16 (null unless bf16_activations).
    void (*to_bf16)(const float* x, int k, std::uint32_t* out);
    /// Scattered rows (kernels/cpu/gathered.h); null where they are put in block order for the ones above.
    const GatheredKernel* gathered_int8 = nullptr;
    const GatheredKernel* gathered_bf16 = nullptr;
    /// Thin factors, outputs kept above bounds (kernels/cpu/passing.h); null where they are written first.
    PassingBlocks passing_int8 = nullptr;
    PassingBlocks passing_bf16 = nullptr;
};

extern const MatmulKernels matmul_kernels_portable;
extern const MatmulKernels matmul_kernels_avx2;
extern const MatmulKernels matmul_kernels_avx_vnni;
extern const MatmulKernels matmul_kernels_avx512;
extern const MatmulKernels matmul_kernels_vnni;
extern const MatmulKernels matmul_kernels_bf16;
extern const MatmulKernels matmul_kernels_amx;

}  // namespace draftscope::kernels
