#include "engine/fit/samples.h"

#include <algorithm>
#include <cassert>

#include "base/numel.h"
#include "kernels/ops/float16.h"

namespace draftscope::fit {

void Bf16Rows::append(std::span<const float> row) {
    assert(static_cast<int>(row.size()) == width_);
    for (const float value : row) data_.push_back(kernels::to_bf16(value));
}

void Bf16Rows::read(int row, std::span<float> out) const {
    assert(row >= 0 && row < rows() && static_cast<int>(out.size()) == width_);
    const std::uint16_t* from = data_.data() + numel(row, width_);
    std::transform(from, from + out.size(), out.begin(), kernels::from_bf16);
}

std::vector<int> SampleRows::indices(bool held) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < held_out.size(); ++i)
        if ((held_out[i] != 0) == held) found.push_back(static_cast<int>(i));
    return found;
}

std::vector<int> pick_evenly(std::vector<int> rows, std::size_t max_count) {
    if (rows.size() <= max_count) return rows;
    std::vector<int> kept;
    for (std::size_t i = 0; i < max_count; ++i) kept.push_back(rows[i * rows.size() / max_count]);
    return kept;
}

}  // namespace draftscope::fit
