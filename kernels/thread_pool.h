#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

#include "base/function_ref.h"

/// Threads of the host. The CPU backend runs its ops on them, and every backend packs weights with them.
/// Batch invariance is a contract of all that they run: a row's result depends only on that row's inputs,
/// never on the number or order of the rows in the call, nor on the thread count (docs/ARCHITECTURE.md).
namespace draftscope::kernels {

/// Instruction set levels. Each includes all lower levels except avx_vnni. avx_vnni (256-bit dot products of
/// 8-bit values) may be missing on CPUs with AVX-512. amx: tiles of int8 and bf16. Its bf16 sums differ from
/// the next lower level in their last bits, its int8 sums do not.
enum class Isa { portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx };
std::string_view to_text(Isa isa);
/// The highest level that this CPU and the operating system support.
Isa supported_isa();
bool can_run(Isa isa);
/// The fastest supported level. It is supported_isa(), or avx512_vnni where vdpbf16ps is slower than the two
/// multiply-adds it replaces (Intel up to Sapphire Rapids).
Isa best_isa();

/// The weights that a pool thread reads next, and how many of their bytes it has prefetched. Threads prefetch
/// while they wait for each other. Any thread may read these values; they are only hints.
struct PrefetchHint {
    std::atomic<const std::byte*> weights{nullptr};
    std::atomic<std::size_t> bytes{0};
};

class ThreadPool {
  public:
    virtual ~ThreadPool() = default;
    virtual int threads() const = 0;
    virtual Isa isa() const = 0;
    /// Number of workers pinned to a CPU of their own.
    virtual int pinned() const { return 0; }
    /// Runs `work(part)` for part = 0..parts-1 on the pool and returns when all are done. Parts are assigned
    /// statically: part p to thread p % threads. If a thread has not begun its share when the caller has
    /// finished its own, the caller runs that share. Not re-entrant; one caller at a time.
    virtual void parallel(int parts, FunctionRef<void(int part)> work) = 0;
    /// Returns scratch memory (64-byte aligned) of one pool thread, valid until the next call for that
    /// thread.
    virtual std::byte* scratch(int thread, std::size_t bytes) = 0;
    /// Returns scratch memory shared by the parts of one op, separate from the per-thread memory.
    virtual std::byte* shared_scratch(std::size_t bytes) = 0;
    /// Prefetch hints of one pool thread; null if nothing is prefetched.
    virtual PrefetchHint* prefetch_hint(int thread) {
        (void)thread;
        return nullptr;
    }

    /// Contiguous blocks of weights that the op after the next one reads. Threads prefetch their share while
    /// they wait. Set it between ops, from the caller.
    struct NextWeights {
        const std::byte* weights = nullptr;
        std::size_t block_bytes = 0;
        int blocks = 0;
    };
    void set_next_weights(const NextWeights& next_weights) { next_weights_ = next_weights; }
    const NextWeights& next_weights() const { return next_weights_; }

  private:
    NextWeights next_weights_;
};

/// Creates a pool of `threads` threads, including the caller. Workers spin briefly, then sleep.
/// FTZ/DAZ is set in every worker and, during each op, in the caller. An `isa` above supported_isa() is
/// lowered to it. With `pin`, each worker is pinned to a CPU of its own if the process may use as many CPUs
/// as threads. The caller is not pinned; one CPU is left for it.
std::unique_ptr<ThreadPool> make_thread_pool(int threads, Isa isa = best_isa(), bool pin = false);

}  // namespace draftscope::kernels
