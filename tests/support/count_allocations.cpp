#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> allocations{0};
thread_local std::int64_t own_allocations = 0;

void count_one() {
    allocations.fetch_add(1, std::memory_order_relaxed);
    ++own_allocations;
}
}  // namespace

namespace draftscope::testing {

std::int64_t total_allocations() {
    return allocations.load();
}
std::int64_t thread_allocations() {
    return own_allocations;
}

}  // namespace draftscope::testing

void* operator new(std::size_t size) {
    count_one();
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    count_one();
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
