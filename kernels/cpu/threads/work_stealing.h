#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "kernels/cpu/threads/split.h"

namespace draftscope::kernels {

/// Distributes the blocks of one product by work stealing. Each thread takes pieces of decreasing size from
/// the front of its contiguous share. It then steals from the back of other shares. A slow thread therefore
/// delays the others by at most one piece.
class WorkStealingRange {
  public:
    static constexpr int max_threads = 32;
    /// Minimum number of blocks in a piece; smaller pieces cost more than they balance.
    static constexpr int default_min_blocks = 2;

    /// Number of threads that pay off for this many blocks.
    static int threads_for(const ThreadPool& pool, int blocks, std::int64_t operations) {
        return operations < min_parallel_ops ? 1 : std::min({blocks, pool.threads(), max_threads});
    }

    WorkStealingRange(int blocks, int threads, int min_blocks = default_min_blocks)
        : threads_(threads), min_blocks_(min_blocks) {
        for (int t = 0; t < threads; ++t)
            share(t).store(packed(share_begin(blocks, t, threads), share_begin(blocks, t + 1, threads)),
                           std::memory_order_relaxed);
    }

    int threads() const { return threads_; }
    bool has_work() const {
        for (int t = 0; t < threads_; ++t) {
            const std::uint64_t range = share(t).load(std::memory_order_relaxed);
            if (range_begin(range) != range_end(range)) return true;
        }
        return false;
    }
    /// Calls `work(begin, end, own)` for one piece after another until all are taken.
    template <typename Work>
    void take_all(int thread, Work work) {
        int begin = 0, end = 0;
        if (threads_ == 1) {
            const std::uint64_t all = share(thread).exchange(0, std::memory_order_relaxed);
            return work(range_begin(all), range_end(all), true);
        }
        while (take_front(share(thread), begin, end)) work(begin, end, true);
        for (int other = 1; other < threads_; ++other) {
            while (take_back(share((thread + other) % threads_), begin, end)) work(begin, end, false);
        }
    }

  private:
    struct alignas(64) Share {
        std::atomic<std::uint64_t> range{0};
    };
    using Range = std::atomic<std::uint64_t>;

    static std::uint64_t packed(int begin, int end) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(begin)) << 32 |
               static_cast<std::uint32_t>(end);
    }
    static int range_begin(std::uint64_t range) { return static_cast<int>(range >> 32); }
    static int range_end(std::uint64_t range) { return static_cast<int>(range & 0xffffffffu); }
    int piece_size(int begin, int end) const {
        return std::min(std::max((end - begin) / 2, min_blocks_), end - begin);
    }
    Range& share(int thread) { return shares_[thread].range; }
    const Range& share(int thread) const { return shares_[thread].range; }

    bool take_front(Range& share, int& begin, int& end) const {
        std::uint64_t range = share.load(std::memory_order_relaxed);
        do {
            begin = range_begin(range);
            end = begin + piece_size(begin, range_end(range));
            if (begin == end) return false;
        } while (
            !share.compare_exchange_weak(range, packed(end, range_end(range)), std::memory_order_relaxed));
        return true;
    }
    bool take_back(Range& share, int& begin, int& end) const {
        std::uint64_t range = share.load(std::memory_order_relaxed);
        do {
            end = range_end(range);
            begin = end - piece_size(range_begin(range), end);
            if (begin == end) return false;
        } while (!share.compare_exchange_weak(range, packed(range_begin(range), begin),
                                              std::memory_order_relaxed));
        return true;
    }

    int threads_, min_blocks_;
    std::array<Share, max_threads> shares_;
};

}  // namespace draftscope::kernels
