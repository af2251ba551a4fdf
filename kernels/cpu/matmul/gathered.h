#pragma once

#include <cstddef>
#include <cstdint>

/// Products of scattered rows of a RowMajorMatrix without copying them to the block order of packed weights.
/// Plain pointers only, as in matmul_kernels.h.
namespace draftscope::kernels {

struct MatmulWork;

struct GatheredWork {
    const std::byte* store = nullptr;  ///< row 0
    std::size_t row_bytes = 0;         ///< a multiple of the 64-byte cache line
    const std::int32_t* ids = nullptr;
    int count = 0;  ///< number of ids
    int k = 0;
    int rows = 0;                  ///< M
    const std::byte* x = nullptr;  ///< output of prepare()
    std::byte* scratch = nullptr;  ///< scratch_bytes(), 64-byte aligned
    int rows_ahead = 0;            ///< prefetch distance in rows
    float* y = nullptr;            ///< [M, y_stride]
    std::int64_t y_stride = 0;
};

struct GatheredKernel {
    std::size_t (*x_bytes)(int k, int rows);
    std::size_t (*scratch_bytes)(int k, std::size_t row_bytes);
    /// Converts the activations of MatmulWork (k, rows, x_int8 and x_scale or x_bf16).
    void (*prepare)(const MatmulWork& work, std::byte* x);
    /// Computes blocks [begin, end) of 16 ids, with the bits of the same instruction set's MatmulBlocks.
    void (*run)(const GatheredWork& work, int begin, int end);
};

extern const GatheredKernel gathered_int8_amx;
extern const GatheredKernel gathered_bf16_amx;

}  // namespace draftscope::kernels
