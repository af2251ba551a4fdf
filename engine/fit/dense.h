#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/numel.h"
#include "base/spans.h"

namespace draftscope::fit {

/// A dense row-major f32 matrix that owns its memory.
struct Dense {
    Dense() = default;
    Dense(int rows_in, int cols_in) : rows(rows_in), cols(cols_in), data(numel(rows_in, cols_in)) {}
    /// Changes the size; the values are unspecified. Reallocates only to grow.
    void resize(int rows_in, int cols_in) {
        rows = rows_in;
        cols = cols_in;
        const std::size_t size = numel(rows_in, cols_in);
        if (data.size() < size) data.resize(size);
    }
    std::size_t size() const { return numel(rows, cols); }
    std::span<float> values() { return {data.data(), size()}; }
    std::span<const float> values() const { return {data.data(), size()}; }
    Rows<float> view() { return {data.data(), rows, cols}; }
    Rows<const float> view() const { return {data.data(), rows, cols}; }
    std::span<float> row(int r) { return view().row(r); }
    std::span<const float> row(int r) const { return view().row(r); }

    int rows = 0, cols = 0;
    std::vector<float> data;
};

}  // namespace draftscope::fit
