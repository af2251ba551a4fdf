#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace draftscope {

/// The memory of a round: a buffer of a backend's memory for every request, by its order in the round. What
/// alloc() returns stays where it is until the next begin(). Buffers only grow, so that rounds with the same
/// requests, or smaller ones, get the same addresses, and graphs of one round serve the next.
class RoundArena {
  public:
    /// Starts a round in `memory`, which outlives the arena. Everything allocated before is invalid.
    void begin(kernels::DeviceMemory& memory);
    /// Returns memory for `count` values, aligned to 256 bytes, with any contents. Returns null if there is
    /// too little memory; enough() is false then.
    template <typename T>
    T* alloc(std::size_t count) {
        return static_cast<T*>(allocate(count * sizeof(T)));
    }
    /// Returns `count` value-initialised objects without destructors, in an arena of the host's memory.
    template <typename T>
    std::span<T> list(std::size_t count) {
        T* values = alloc<T>(count);
        if (values == nullptr) return {};
        std::uninitialized_value_construct_n(values, count);
        return {values, count};
    }
    /// Returns whether every request since begin() got memory. If not, DeviceMemory::refused_bytes() is the
    /// size of the latest that did not.
    bool enough() const { return !refused_; }

  private:
    void* allocate(std::size_t bytes);

    kernels::DeviceMemory* memory_ = nullptr;
    std::vector<kernels::DeviceBuffer> buffers_;
    std::size_t next_ = 0;  ///< index of the next request
    bool refused_ = false;  ///< there was too little memory for a request
};

/// The memory of a step of rounds.
struct RoundMemory {
    RoundArena backend;  ///< what ops read and write
    RoundArena host;     ///< lists of ops, and values to upload
    void begin(kernels::Backend& on) {
        backend.begin(on);
        host.begin(kernels::host_memory());
    }
    bool enough() const { return backend.enough() && host.enough(); }
    /// Returns memory for `count` activations of `on`.
    kernels::Activations activations(kernels::Backend& on, std::size_t count) {
        return on.as_activations(backend.alloc<std::byte>(count * on.activation_bytes()));
    }
};

}  // namespace draftscope
