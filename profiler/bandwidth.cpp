#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "profiler/machine.h"

namespace draftscope {

namespace {

constexpr int passes = 5;

// Eight independent sums keep several cache lines in flight; the result is used so that no load is dropped.
std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
    std::uint64_t sums[8] = {};
    for (std::size_t i = 0; i + 8 <= count; i += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
    std::uint64_t all = 0;
    for (const std::uint64_t sum : sums) all ^= sum;
    return all;
}

}  // namespace

double probe_read_bandwidth(int threads, int megabytes) {
    threads = std::max(1, threads);
    const std::size_t words_each = static_cast<std::size_t>(std::max(1, megabytes)) * 1024 * 1024 / 8 /
                                   static_cast<std::size_t>(threads);
    if (words_each == 0) return 0;
    std::barrier<> line(threads + 1);
    std::atomic<std::uint64_t> sink{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
        pool.emplace_back([&] {
            // Each thread touches its own part first, so pages lie in its own memory node.
            std::vector<std::uint64_t> words(words_each, 0x0123456789abcdefULL);
            for (int pass = 0; pass < passes; ++pass) {
                line.arrive_and_wait();
                sink.fetch_xor(read_all(words.data(), words.size()), std::memory_order_relaxed);
                line.arrive_and_wait();
            }
        });
    }
    TimeNs best = 0;
    for (int pass = 0; pass < passes; ++pass) {
        line.arrive_and_wait();
        const TimeNs start = monotonic_ns();
        line.arrive_and_wait();
        const TimeNs took = monotonic_ns() - start;
        if (best == 0 || took < best) best = took;
    }
    for (std::thread& thread : pool) thread.join();
    const double bytes = static_cast<double>(words_each) * 8.0 * threads;
    return best > 0 ? bytes / static_cast<double>(best) : 0;
}

}  // namespace draftscope
