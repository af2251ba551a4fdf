#pragma once

#include <cstddef>

namespace draftscope {

/// A part of a set of conversations: every `count`-th one, from number `index` on. The shards 1/n to n/n
/// partition the set.
struct Shard {
    int index = 1;  ///< from 1
    int count = 1;

    bool whole() const { return count == 1; }
    /// Returns whether the shard has the conversation at this place of the whole set, from 0.
    bool has(std::size_t place) const {
        return place % static_cast<std::size_t>(count) == static_cast<std::size_t>(index - 1);
    }
    bool operator==(const Shard&) const = default;
};

}  // namespace draftscope
