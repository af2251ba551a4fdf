#include "kernels/cpu/host_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/backend.h"

namespace draftscope::kernels {
namespace {

std::atomic<int> allocations_left = -1;

/// Host memory. It outlives every ThreadPool, so buffers may outlive the pool that filled them.
class HostMemory final : public DeviceMemory {
  public:
    void* allocate(std::size_t bytes) override {
        if (allocations_left == 0) return nullptr;
        if (allocations_left > 0) --allocations_left;
        // Pages of a large allocation are cleared when they are first touched.
        auto* start = static_cast<std::byte*>(std::calloc(bytes + 2 * alignment, 1));
        if (start == nullptr) return nullptr;
        auto address = reinterpret_cast<std::uintptr_t>(start) + sizeof(void*);
        address = (address + alignment - 1) / alignment * alignment;
        auto* data = reinterpret_cast<std::byte*>(address);
        std::memcpy(data - sizeof(void*), &start, sizeof(void*));
        return data;
    }
    void release(void* data) override {
        void* start = nullptr;
        std::memcpy(&start, static_cast<std::byte*>(data) - sizeof(void*), sizeof(void*));
        std::free(start);
    }

  private:
    static constexpr std::size_t alignment = 256;
};

}  // namespace

DeviceMemory& host_memory() {
    static HostMemory& memory = *new HostMemory;  // buffers of static objects may outlive any order
    return memory;
}

void limit_host_memory(int allocations) {
    allocations_left = allocations;
}
int host_memory_left() {
    return allocations_left;
}

}  // namespace draftscope::kernels
