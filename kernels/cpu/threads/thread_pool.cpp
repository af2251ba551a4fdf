#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "base/cpus.h"
#include "kernels/cpu/threads/fp_mode.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace draftscope::kernels {
namespace {

constexpr std::size_t cache_line = 64;

void relax() {
#if defined(__SSE2__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

/// Upper bound on a waiting thread's prefetch: a part of each L2 cache.
constexpr std::size_t max_prefetch_bytes = 128 << 10;
constexpr std::size_t fetched_at_once = 4 * cache_line;

/// Returns false if nothing is left to prefetch, or the limit is reached.
bool prefetch_some(PrefetchHint& ahead) {
    const std::byte* weights = ahead.weights.load(std::memory_order_relaxed);
    const std::size_t bytes = ahead.bytes.load(std::memory_order_relaxed);
    if (weights == nullptr || bytes >= max_prefetch_bytes) return false;
#if defined(__GNUC__)
    for (std::size_t line = 0; line < fetched_at_once; line += cache_line)
        __builtin_prefetch(weights + bytes + line, 0, 2);
#endif
    ahead.bytes.store(bytes + fetched_at_once, std::memory_order_relaxed);
    return true;
}

/// Memory that only grows, so that a decode loop stops allocating after its first step.
class GrowingBuffer {
  public:
    ~GrowingBuffer() { release(); }
    GrowingBuffer() = default;
    GrowingBuffer(const GrowingBuffer&) = delete;
    GrowingBuffer& operator=(const GrowingBuffer&) = delete;

    std::byte* reserve(std::size_t bytes) {
        if (bytes > size_) {
            release();
            size_ = std::max<std::size_t>(bytes + bytes / 2, 4096);
            data_ = static_cast<std::byte*>(::operator new (size_, std::align_val_t{cache_line}));
        }
        return data_;
    }

  private:
    void release() {
        if (data_ != nullptr) ::operator delete (data_, std::align_val_t{cache_line});
        data_ = nullptr;
    }
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A wake-up through the kernel costs 3 to 10 us, as much as a whole small matmul. Threads therefore spin
/// through the gaps inside a forward pass (a few us) and sleep through longer gaps. On a busy machine a
/// thread may not get its core for milliseconds. The caller, when done with its share, runs every share that
/// has not begun.
class CpuThreadPool final : public ThreadPool {
  public:
    CpuThreadPool(int threads, Isa isa, bool pin)
        : threads_(std::max(threads, 1)),
          isa_(isa),
          scratch_(threads_),
          read_ahead_(threads_),
          shares_(threads_) {
        const std::vector<int> cpus = usable_cpus();
        const bool enough = static_cast<std::size_t>(threads_) <= cpus.size();
        spins_ = enough ? 2000 : 20;
        workers_.reserve(threads_ - 1);
        for (int t = 1; t < threads_; ++t) {
            workers_.emplace_back([this, t] { serve(t); });
            // The first CPU is left to the caller, which is not pinned.
            if (pin && enough && pin_thread(workers_.back(), cpus[t])) ++pinned_;
        }
    }

    ~CpuThreadPool() override {
        stop_ = true;
        epoch_.value.fetch_add(1, std::memory_order_release);
        epoch_.value.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    int threads() const override { return threads_; }
    Isa isa() const override { return isa_; }
    int pinned() const override { return pinned_; }

    void parallel(int parts, FunctionRef<void(int part)> work) override {
        const FlushDenormals mode;
        if (parts <= 1 || threads_ == 1) {
            for (int part = 0; part < parts; ++part) work(part);
            return;
        }
        work_ = &work;
        parts_ = parts;
        const std::uint32_t call = epoch_.value.fetch_add(1, std::memory_order_seq_cst) + 1;
        epoch_.value.notify_all();
        run_share(0);
        for (int thread = 1; thread < threads_; ++thread) {
            if (claim(thread, call)) {
                run_share(thread);
                shares_[thread].done.store(call, std::memory_order_relaxed);
            }
        }
        for (int thread = 1; thread < threads_; ++thread) {
            std::atomic<std::uint32_t>& done = shares_[thread].done;
            while (wait_while(0, done, [call](std::uint32_t v) { return v != call; }) != call) {
            }
        }
    }

    std::byte* scratch(int thread, std::size_t bytes) override {
        return scratch_[thread].buffer.reserve(bytes);
    }
    std::byte* shared_scratch(std::size_t bytes) override { return shared_.reserve(bytes); }
    PrefetchHint* prefetch_hint(int thread) override { return &read_ahead_[thread].weights; }

  private:
    struct alignas(cache_line) PaddedCounter {
        std::atomic<std::uint32_t> value{0};
    };
    /// The calls in which a thread's share was last claimed and last finished.
    struct alignas(cache_line) Share {
        std::atomic<std::uint32_t> claimed{0};
        std::atomic<std::uint32_t> done{0};
    };

    /// Returns true for exactly one of the thread and the caller. A thread that is late, during a later call,
    /// fails here before it reads `work_`.
    bool claim(int thread, std::uint32_t call) {
        std::uint32_t before = call - 1;
        return shares_[thread].claimed.compare_exchange_strong(before, call, std::memory_order_acq_rel);
    }
    struct alignas(cache_line) PaddedReadAhead {
        PrefetchHint weights;
    };
    struct alignas(cache_line) PaddedBuffer {
        GrowingBuffer buffer;
    };

    /// Prefetches the next weights while waiting.
    template <typename Busy>
    std::uint32_t wait_while(int thread, std::atomic<std::uint32_t>& counter, Busy busy) {
        PrefetchHint& ahead = *prefetch_hint(thread);
        for (unsigned i = 0; i < spins_; ++i) {
            const std::uint32_t now = counter.load(std::memory_order_acquire);
            if (!busy(now)) return now;
            if (!prefetch_some(ahead)) relax();
        }
        const std::uint32_t now = counter.load(std::memory_order_acquire);
        if (busy(now)) counter.wait(now, std::memory_order_acquire);
        return counter.load(std::memory_order_acquire);
    }

    void serve(int thread) {
        const FlushDenormals mode;
        std::uint32_t seen = 0;
        for (;;) {
            const std::uint32_t now =
                wait_while(thread, epoch_.value, [seen](std::uint32_t v) { return v == seen; });
            if (now == seen) continue;
            seen = now;
            if (stop_) return;
            if (!claim(thread, seen)) continue;
            run_share(thread);
            std::atomic<std::uint32_t>& done = shares_[thread].done;
            done.exchange(seen, std::memory_order_seq_cst);
            done.notify_one();
        }
    }

    void run_share(int thread) {
        for (int part = thread; part < parts_; part += threads_) (*work_)(part);
    }

    const int threads_;
    const Isa isa_;
    unsigned spins_ = 0;
    std::vector<PaddedBuffer> scratch_;
    std::vector<PaddedReadAhead> read_ahead_;
    std::vector<Share> shares_;
    GrowingBuffer shared_;
    PaddedCounter epoch_;
    const FunctionRef<void(int part)>* work_ = nullptr;
    int parts_ = 0;
    std::atomic<bool> stop_{false};
    int pinned_ = 0;
    std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<ThreadPool> make_thread_pool(int threads, Isa isa, bool pin) {
    isa = std::min(isa, supported_isa());
    return std::make_unique<CpuThreadPool>(threads, can_run(isa) ? isa : Isa::avx2, pin);
}

}  // namespace draftscope::kernels
