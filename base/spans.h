#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <type_traits>

namespace draftscope {

/// Non-owning row-major matrix view of shape [rows, cols]. Consecutive rows are `stride` elements apart.
template <typename T>
struct Rows {
    T* data = nullptr;
    int rows = 0;
    int cols = 0;
    std::ptrdiff_t stride = 0;

    Rows() = default;
    Rows(T* data_in, int rows_in, int cols_in)
        : data(data_in), rows(rows_in), cols(cols_in), stride(cols_in) {}
    Rows(T* data_in, int rows_in, int cols_in, std::ptrdiff_t stride_in)
        : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}
    template <typename U>
    requires(std::is_same_v<const U, T>) Rows(const Rows<U>& other)
        : data(other.data), rows(other.rows), cols(other.cols), stride(other.stride) {}

    bool empty() const { return rows == 0; }
    T* row_data(int r) const { return data + static_cast<std::ptrdiff_t>(r) * stride; }
    std::span<T> row(int r) const {
        assert(r >= 0 && r < rows);
        return {row_data(r), static_cast<std::size_t>(cols)};
    }
    Rows slice(int first, int count) const {
        assert(first >= 0 && first + count <= rows);
        return Rows(row_data(first), count, cols, stride);
    }
};

}  // namespace draftscope
