#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/round/layout.h"

namespace draftscope {

/// What the download of a step brings back to the host.
class RoundResults {
  public:
    /// Starts the results of a step and requests its trees and paths.
    void begin(const RoundLayout& layout);
    /// Requests `count` 4-byte values of the backend's memory. Returns the index for values().
    std::size_t request(const void* from, std::size_t count);
    /// Enqueues the download of everything requested since the last call. The values are valid after
    /// Backend::synchronize().
    void enqueue(kernels::Backend& backend);

    /// Values that were requested, until the next begin().
    template <typename T = std::int32_t>
    std::span<const T> values(std::size_t index, std::size_t count) const {
        static_assert(sizeof(T) == sizeof(std::int32_t));
        return {reinterpret_cast<const T*>(values_.data()) + index, count};
    }
    /// Reads a tree without its missing nodes and finishes it. Invalid parents are an error.
    Status read_tree(int tree_index, DraftTree& out) const;
    std::span<const int> path(int tree_index) const;  ///< accepted nodes, root first

  private:
    struct Request {
        const void* from;
        std::size_t index, count;
    };
    const RoundLayout* layout_ = nullptr;
    std::vector<Request> requests_;
    std::size_t size_ = 0;  ///< values requested since begin()
    std::vector<std::int32_t> values_;
};

}  // namespace draftscope
