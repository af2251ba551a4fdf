#include "engine/round/arena.h"

#include <algorithm>

namespace draftscope {

void RoundArena::begin(kernels::DeviceMemory& memory) {
    next_ = 0;
    refused_ = false;
    if (memory_ == &memory.memory()) return;
    memory_ = &memory.memory();
    buffers_.clear();
}

void* RoundArena::allocate(std::size_t bytes) {
    bytes = std::max<std::size_t>(bytes, 1);
    if (next_ == buffers_.size()) buffers_.emplace_back();
    kernels::DeviceBuffer& buffer = buffers_[next_++];
    // Requests that grow slowly seldom allocate.
    if (bytes > buffer.bytes()) bytes = std::max(bytes, std::min(2 * buffer.bytes(), bytes + bytes / 4));
    if (buffer.reserve(*memory_, bytes)) return buffer.as<void>();
    refused_ = true;
    return nullptr;
}

}  // namespace draftscope
