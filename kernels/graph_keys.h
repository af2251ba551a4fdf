#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace draftscope::kernels {

/// The graphs of one object's passes, by what the ops of a pass depend on: sizes and addresses.
class GraphKeys {
  public:
    /// Runs `work`, which only enqueues ops, through Backend::graph(). Passes of equal `shape` share a graph.
    void run(Backend& backend, std::span<const std::int64_t> shape, FunctionRef<void()> work) {
        if (!backend.keeps_graphs()) return work();
        if (keys_.size() > max_graphs) keys_.clear();
        shape_.assign(shape.begin(), shape.end());
        std::uint64_t& key = keys_[shape_];
        if (key == 0) key = backend.new_graph_key();
        backend.graph(key, work);
    }

  private:
    /// Number of shapes above which all graphs are discarded.
    static constexpr std::size_t max_graphs = 96;

    std::map<std::vector<std::int64_t>, std::uint64_t> keys_;
    std::vector<std::int64_t> shape_;
};

/// An address as part of a shape.
inline std::int64_t as_key(const void* address) {
    return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address));
}

}  // namespace draftscope::kernels
