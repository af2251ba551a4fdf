#pragma once

#include <cstddef>
#include <cstdint>

namespace draftscope {

/// Number of elements of a [rows, cols] array. Both are at least 0.
constexpr std::size_t numel(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

/// Index of the first element of `row` in an array whose rows are `stride` elements apart.
constexpr std::size_t row_offset(std::int64_t row, std::int64_t stride) {
    return numel(row, stride);
}

}  // namespace draftscope
