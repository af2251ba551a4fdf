#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

#include "base/function_ref.h"

/// Where ops run. Engine code passes an Exec to every op and never asks which back end it is.
/// Batch invariance is a contract of every op in this folder: the result of a row depends on that row's
/// inputs alone, never on how many rows share the call, on their order, nor on the thread count
/// (docs/ARCHITECTURE.md).
namespace draftscope::kernels {

/// Each level includes the ones before it, but for avx_vnni (8-bit dot products of 256 bits), which CPUs with
/// AVX-512 may lack. amx: tiles of int8 and bf16; bf16 sums of this level differ from
/// those of the level below in their last bits, int8 sums do not.
enum class Isa { portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx };
std::string_view to_text(Isa isa);
/// What this CPU and the operating system can run.
Isa supported_isa();
bool can_run(Isa isa);
/// The fastest of those: supported_isa(), but avx512_vnni where vdpbf16ps is slower than the two
/// multiply-adds it replaces (Intel up to Sapphire Rapids).
Isa best_isa();

class Device;

/// The weights that one pool thread reads next and how many bytes of them it has asked memory for, so that
/// memory is read while threads wait for each other. Any thread may look; what it says is only a hint.
struct ReadAhead {
    std::atomic<const std::byte*> weights{nullptr};
    std::atomic<std::size_t> bytes{0};
};

class Exec {
  public:
    virtual ~Exec() = default;
    /// Where matrices live and products are computed; null = in this memory, by these threads.
    virtual Device* device() { return nullptr; }
    virtual int threads() const = 0;
    virtual Isa isa() const = 0;
    /// Workers that are kept on a CPU of their own.
    virtual int pinned() const { return 0; }
    /// Runs `work(part)` for part = 0..parts-1 over the pool and returns when all are done. Static
    /// assignment: part p belongs to thread p % threads; a share whose thread has not begun when the caller
    /// is done with its own runs on the caller. Not re-entrant, one caller at a time.
    virtual void parallel(int parts, FunctionRef<void(int part)> work) = 0;
    /// Scratch memory (64-byte aligned) of one pool thread, valid until the next call for that thread.
    virtual std::byte* scratch(int thread, std::size_t bytes) = 0;
    /// Scratch shared by the parts of one op, separate from the per-thread ones.
    virtual std::byte* shared_scratch(std::size_t bytes) = 0;
    /// Of one pool thread; null where nothing reads ahead.
    virtual ReadAhead* read_ahead(int thread) {
        (void)thread;
        return nullptr;
    }

    /// Blocks of weights, one behind the other, that the op after the next one reads; threads begin with
    /// their share while they wait. Between ops, from the caller.
    struct Upcoming {
        const std::byte* weights = nullptr;
        std::size_t block_bytes = 0;
        int blocks = 0;
    };
    void expect(const Upcoming& upcoming) { upcoming_ = upcoming; }
    const Upcoming& upcoming() const { return upcoming_; }

  private:
    Upcoming upcoming_;
};

/// Worker pool on the CPU, `threads` including the caller. Spins briefly, then sleeps. Sets FTZ/DAZ in every
/// worker and, for the length of each op, in the caller. `isa` above
/// supported_isa() is lowered to it. `pin` keeps each worker on a CPU of its own, where the process may use
/// as many as there are threads; the caller stays free, and finds the CPU that is left.
std::unique_ptr<Exec> make_cpu_exec(int threads, Isa isa = best_isa(), bool pin = false);

}  // namespace draftscope::kernels
