#include "engine/heads/head_call.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/numel.h"

namespace draftscope {
namespace {

template <std::size_t count, typename T>
std::array<T, count> filled(T value) {
    std::array<T, count> values;
    values.fill(value);
    return values;
}

}  // namespace

void leave_no_candidates(HeadCall& call, int first_row, int rows) {
    constexpr int at_once = 64;
    static const std::array ids = filled<at_once>(std::int32_t{-1});
    static const std::array logits = filled<at_once>(-std::numeric_limits<float>::infinity());
    if (call.support_logits != nullptr) {
        static const std::array sizes = filled<at_once>(std::int32_t{0});
        for (int row = first_row; row < first_row + rows; row += at_once)
            call.backend.upload(call.support_sizes + row, sizes.data(),
                                numel(std::min(at_once, first_row + rows - row), sizeof(std::int32_t)));
        return;
    }
    const std::size_t end = numel(first_row + rows, call.k);
    for (std::size_t offset = numel(first_row, call.k); offset < end; offset += at_once) {
        const std::size_t count = std::min<std::size_t>(at_once, end - offset);
        call.backend.upload(call.ids + offset, ids.data(), count * sizeof(std::int32_t));
        call.backend.upload(call.logits + offset, logits.data(), count * sizeof(float));
    }
}

}  // namespace draftscope
