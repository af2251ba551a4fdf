#include "kernels/cpu/weight_memory.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace draftscope::kernels {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;
/// Reserves address space only: unwritten pages take no memory.
constexpr std::size_t chunk_bytes = 16 * huge_page;
constexpr std::size_t largest_shared = chunk_bytes / 4;

std::size_t round_to(std::size_t bytes, std::size_t unit) {
    return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

std::byte* allocate_aligned(std::size_t bytes, std::size_t unit) {
    const std::size_t size = round_to(bytes, unit);
    void* data = std::aligned_alloc(unit, size);
    if (data == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    if (unit == huge_page) madvise(data, size, MADV_HUGEPAGE);
#endif
    return static_cast<std::byte*>(data);
}

/// Chunks that small matrices share. A chunk is freed with its last matrix.
class Chunks {
  public:
    std::byte* take(std::size_t bytes) {
        const std::size_t size = round_to(bytes, cache_line);
        const std::lock_guard lock(mutex_);
        if (current_ == chunks_.end() || current_->second.used + size > chunk_bytes) {
            current_ = chunks_.end();
            current_ = chunks_.emplace(allocate_aligned(chunk_bytes, huge_page), Chunk{}).first;
        }
        Chunk& chunk = current_->second;
        std::byte* at = current_->first + chunk.used;
        chunk.used += size;
        ++chunk.matrices;
        return at;
    }

    /// Returns whether `at` was in one of the chunks.
    bool free_chunk(std::byte* at) {
        const std::lock_guard lock(mutex_);
        auto above = chunks_.upper_bound(at);
        if (above == chunks_.begin()) return false;
        const auto owner = std::prev(above);
        if (static_cast<std::size_t>(at - owner->first) >= chunk_bytes) return false;
        if (--owner->second.matrices > 0) return true;
        owner->second.used = 0;
        if (owner == current_) return true;
        std::free(owner->first);
        chunks_.erase(owner);
        return true;
    }

  private:
    struct Chunk {
        std::size_t used = 0;
        int matrices = 0;
    };
    using Place = std::map<std::byte*, Chunk>::iterator;

    std::mutex mutex_;
    std::map<std::byte*, Chunk> chunks_;
    Place current_ = chunks_.end();
};

/// Never destroyed: matrices of static lifetime are freed after main().
Chunks& chunks() {
    static auto* all = new Chunks;
    return *all;
}

/// The sanitizer detects reads past a matrix only if the matrix has an allocation of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool shared_chunks = false;
#else
constexpr bool shared_chunks = true;
#endif

}  // namespace

std::byte* allocate_weights(std::size_t bytes) {
    if (!shared_chunks || bytes > largest_shared)
        return allocate_aligned(bytes, bytes >= huge_page / 2 ? huge_page : cache_line);
    return chunks().take(bytes);
}

void free_weights(std::byte* weights) {
    if (weights == nullptr || (shared_chunks && chunks().free_chunk(weights))) return;
    std::free(weights);
}

}  // namespace draftscope::kernels
