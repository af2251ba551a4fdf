#pragma once

#include <cstring>

#include "base/numel.h"
#include "kernels/cpu/matmul/interleave.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/row_major_matrix.h"

// Layout of stored rows. In every precision, a group of inputs of one output is 4 bytes of a packed matrix,
// and the groups of 16 outputs are contiguous (kernels/cpu/matmul/layout.h). A stored row has its groups in
// order, then its scales.
namespace draftscope::kernels {

struct RowShape {
    static constexpr std::size_t alignment = 64;
    RowShape(Packing packing, int k)
        : groups(block_bytes(packing.precision, k) / (lanes * sizeof(std::uint32_t))),
          scales(scale_bytes(packing, k) / (lanes * sizeof(std::uint16_t))) {}
    std::size_t bytes() const {
        const std::size_t used = groups * sizeof(std::uint32_t) + scales * sizeof(std::uint16_t);
        return (used + alignment - 1) / alignment * alignment;
    }
    std::size_t groups, scales;
};

Interleave16 interleave_for(const ThreadPool& pool);

/// Writes one block of a packed matrix from 16 stored rows; `values` and `scales` are the block's. Prefetches
/// the 16 rows `ahead` (null = none).
inline void write_block(Interleave16 interleave, const RowShape& shape, const std::uint32_t* const* rows,
                        std::uint32_t* values, std::uint16_t* scales, const std::uint32_t* const* ahead) {
    interleave(rows, static_cast<int>(shape.groups), values, ahead);
    // The interleave prefetches groups; only lines with scales alone remain.
    constexpr std::size_t line_groups = RowShape::alignment / sizeof(std::uint32_t);
    for (std::size_t at = (shape.groups + line_groups - 1) / line_groups * line_groups;
         ahead != nullptr && at * sizeof(std::uint32_t) < shape.bytes(); at += line_groups)
        for (int lane = 0; lane < lanes; ++lane) __builtin_prefetch(ahead[lane] + at, 0, 2);
    for (std::size_t s = 0; s < shape.scales; ++s)
        for (int lane = 0; lane < lanes; ++lane)
            std::memcpy(&scales[s * lanes + lane],
                        reinterpret_cast<const std::byte*>(rows[lane] + shape.groups) + 2 * s, 2);
}

inline void prefetch_row(const std::byte* row, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += RowShape::alignment) __builtin_prefetch(row + at, 0, 2);
}

}  // namespace draftscope::kernels
