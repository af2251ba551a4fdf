#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/split.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Bytes between the line that is used and the one that is fetched: more than memory delivers within its
/// latency.
inline constexpr std::ptrdiff_t fetched_ahead = 8 << 10;
inline constexpr std::ptrdiff_t weight_line = 64;

/// Does a thread's share of `bytes` come from memory in every call? Smaller ones stay in its second cache
/// when nothing else is read in between; there several streams side by side are faster than one.
bool comes_from_memory(std::size_t bytes);

/// Of blocks [begin, end), the last line of which is fetched again and again in the end, which is free.
inline WeightStream stream_of(const std::byte* weights, std::size_t block, int begin, int end,
                              std::ptrdiff_t fetched = fetched_ahead) {
    const std::byte* first = weights + static_cast<std::size_t>(begin) * block;
    const std::byte* last = weights + static_cast<std::size_t>(end) * block - weight_line;
    return {first + std::min(fetched, last - first), last + weight_line, last,
            static_cast<std::ptrdiff_t>(block)};
}

/// What `thread` reads in one product: blocks [begin, end), then the first of its share of the weights that
/// Exec::expect() announced.
class ThreadStream {
  public:
    ThreadStream(Exec& exec, int thread, const std::byte* weights, std::size_t block, int begin, int end)
        : ahead_(exec.read_ahead(thread)), first_(weights + static_cast<std::size_t>(begin) * block) {
        std::ptrdiff_t fetched = fetched_ahead;
        if (ahead_ != nullptr && ahead_->weights.load(std::memory_order_relaxed) == first_)
            fetched =
                std::max(fetched, static_cast<std::ptrdiff_t>(ahead_->bytes.load(std::memory_order_relaxed)));
        stream_ = stream_of(weights, block, begin, end, fetched);
        const Exec::Upcoming& upcoming = exec.upcoming();
        if (ahead_ == nullptr || upcoming.weights == nullptr) return;
        const int share = share_begin(upcoming.blocks, thread, exec.threads());
        stream_.next = after_ = upcoming.weights + static_cast<std::size_t>(share) * upcoming.block_bytes;
    }
    ~ThreadStream() {
        if (ahead_ == nullptr) return;
        const bool still_here = after_ == nullptr || within(first_, stream_.end);
        ahead_->bytes.store(still_here ? 0 : static_cast<std::size_t>(stream_.at - after_),
                            std::memory_order_relaxed);
        ahead_->weights.store(after_, std::memory_order_relaxed);
    }
    ThreadStream(const ThreadStream&) = delete;
    ThreadStream& operator=(const ThreadStream&) = delete;
    WeightStream* get() { return &stream_; }

    /// For a share that is read in stretches which do not follow each other: the next one, [first, end), and
    /// what comes behind it; null = what was announced, or nothing.
    void enter(const std::byte* first, const std::byte* end, const std::byte* behind) {
        if (!within(first, end)) stream_.at = first + std::min(fetched_ahead, end - weight_line - first);
        first_ = first;
        stream_.end = end;
        stream_.next = behind != nullptr ? behind : after_ != nullptr ? after_ : end - weight_line;
    }

  private:
    bool within(const std::byte* first, const std::byte* end) const {
        return stream_.at >= first && stream_.at < end;
    }

    ReadAhead* ahead_;
    const std::byte* first_;
    const std::byte* after_ = nullptr;
    WeightStream stream_;
};

}  // namespace draftscope::kernels
