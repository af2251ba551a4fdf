#pragma once

#include <cstddef>

namespace draftscope {

/// Returns the first index of [first, last) for which `before` is false; `last` if there is none. `before`
/// must not become true again.
template <typename Before>
std::size_t bisect(std::size_t first, std::size_t last, Before before) {
    while (first < last) {
        const std::size_t middle = first + (last - first) / 2;
        if (before(middle))
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

}  // namespace draftscope
