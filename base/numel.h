#pragma once

#include <cstddef>
#include <cstdint>

namespace draftscope {

/// Number of elements of a [rows, cols] array, which is also where row `rows` begins. Both are at least 0.
constexpr std::size_t numel(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

}  // namespace draftscope
