#include "engine/fit/samples.h"

#include <algorithm>
#include <cassert>

#include "base/numel.h"
#include "kernels/ops/float16.h"

namespace draftscope::fit {

TextSplit::TextSplit(std::span<const int> generated, HoldOut hold_out) {
    for (std::size_t t = 0; t < generated.size(); ++t)
        if (generated[t] >= 2) usable_.push_back(static_cast<int>(t));
    const auto count = static_cast<int>(usable_.size());
    const int min_every = (count + std::max(hold_out.max_texts, 1) - 1) / std::max(hold_out.max_texts, 1);
    // If there are few texts, the last one is held out.
    every_ = std::max(2, std::min(std::max(hold_out.every, min_every), count));
}

std::vector<int> TextSplit::texts(bool held_out) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < usable_.size(); ++i)
        if (this->held_out(static_cast<int>(i)) == held_out) found.push_back(usable_[i]);
    return found;
}

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
    std::vector<int> selected;
    for (std::size_t i = 0; i < max_count; ++i) selected.push_back(rows[i * rows.size() / max_count]);
    return selected;
}

}  // namespace draftscope::fit
