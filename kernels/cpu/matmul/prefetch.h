#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "base/numel.h"
#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/thread_pool.h"

namespace draftscope::kernels {

/// Prefetch distance in bytes: more than memory delivers within its latency.
inline constexpr std::ptrdiff_t prefetch_distance = 8 << 10;
inline constexpr std::ptrdiff_t weight_line = 64;

/// Returns whether a thread's share of `bytes` is read from memory in every call. Smaller shares stay in L2
/// if nothing else is read in between; for those, several parallel streams are faster than one.
bool exceeds_l2(std::size_t bytes);

/// The stream of blocks [begin, end). Its last line is prefetched repeatedly at the end, at no cost.
inline PrefetchState make_prefetch_state(const std::byte* weights, std::size_t block, int begin, int end,
                                         std::ptrdiff_t fetched = prefetch_distance) {
    const std::byte* first = weights + numel(begin, block);
    const std::byte* last = weights + numel(end, block) - weight_line;
    return {first + std::min(fetched, last - first), last + weight_line, last,
            static_cast<std::ptrdiff_t>(block)};
}

/// Prefetches what `thread` reads in one product. After blocks [begin, end) follows the start of its share of
/// the weights announced by ThreadPool::expect().
class PrefetchCursor {
  public:
    PrefetchCursor(ThreadPool& pool, int thread, const std::byte* weights, std::size_t block, int begin,
                   int end)
        : ahead_(pool.prefetch_hint(thread)), first_(weights + numel(begin, block)) {
        std::ptrdiff_t fetched = prefetch_distance;
        if (ahead_ != nullptr && ahead_->weights.load(std::memory_order_relaxed) == first_)
            fetched =
                std::max(fetched, static_cast<std::ptrdiff_t>(ahead_->bytes.load(std::memory_order_relaxed)));
        stream_ = make_prefetch_state(weights, block, begin, end, fetched);
        const ThreadPool::NextWeights& next_weights = pool.next_weights();
        if (ahead_ == nullptr || next_weights.weights == nullptr) return;
        const int share = share_begin(next_weights.blocks, thread, pool.threads());
        stream_.next = after_ = next_weights.weights + numel(share, next_weights.block_bytes);
    }
    ~PrefetchCursor() {
        if (ahead_ == nullptr) return;
        const bool in_current_range = after_ == nullptr || within(first_, stream_.end);
        ahead_->bytes.store(in_current_range ? 0 : static_cast<std::size_t>(stream_.at - after_),
                            std::memory_order_relaxed);
        ahead_->weights.store(after_, std::memory_order_relaxed);
    }
    PrefetchCursor(const PrefetchCursor&) = delete;
    PrefetchCursor& operator=(const PrefetchCursor&) = delete;
    PrefetchState* get() { return &stream_; }

    /// Starts the next range [first, end) of a share that is not contiguous. `behind` is what follows; null =
    /// the announced weights, if any.
    void enter(const std::byte* first, const std::byte* end, const std::byte* behind) {
        if (!within(first, end)) stream_.at = first + std::min(prefetch_distance, end - weight_line - first);
        first_ = first;
        stream_.end = end;
        stream_.next = behind != nullptr ? behind : after_ != nullptr ? after_ : end - weight_line;
    }

  private:
    bool within(const std::byte* first, const std::byte* end) const {
        return stream_.at >= first && stream_.at < end;
    }

    PrefetchHint* ahead_;
    const std::byte* first_;
    const std::byte* after_ = nullptr;
    PrefetchState stream_;
};

}  // namespace draftscope::kernels
