#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

/// SIMT emulator for device code compiled for the host (DS_SIMT_HOST). The threads of a block are fibres of
/// one thread, which switch at barriers and warp-wide operations. It is slow, but runs the actual kernels,
/// with several orders of their threads. A barrier that not every thread reaches ends the program.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

namespace draftscope::kernels::cuda {

namespace simt {

/// Sets the order in which the threads of a block run: 0 ascending, 1 descending, others shuffled by that
/// seed.
void set_order(unsigned order);
/// Hides device memory from a kernel that started before the previous one ended.
struct MemoryGuard {
    std::function<void()> hide;
    std::function<void(const void* at)> show;  ///< the memory that contains the address; null = all
};
/// Runs the blocks of a kernel one after another. With a guard, every thread must call wait_for_previous(),
/// and the first block does not see the hidden memory until all its threads have. A read of it ends the
/// program. Returns the most bytes of static shared memory that a block used.
std::size_t run(const dim3& grid, const dim3& block, std::size_t shared_bytes,
                const std::function<void()>& kernel, const MemoryGuard* guard = nullptr);
/// How a kernel is launched.
struct Launch {
    bool waits = false;     ///< the kernel calls wait_for_previous()
    bool early = false;     ///< it may start before the previous kernel ends
    const char* file = "";  ///< the path of its source
    const char* name = "";  ///< what kernel_name() returns
};
/// Returns a text that contains the kernel's name and, from GCC, its template arguments.
template <auto* Kernel>
const char* kernel_name() {
    return __PRETTY_FUNCTION__;
}
/// Puts a kernel into a stream of the runtime, which runs it later. Returns false if the runtime refuses it.
bool enqueue(const void* kernel, const dim3& grid, const dim3& block, std::size_t shared_bytes,
             cudaStream_t stream, Launch launch, std::function<void()> call);
void wait_for_previous();
/// Makes a constant visible that is read before wait_for_previous().
void show(const void* at);
char* dynamic_shared();
void sync_block();
/// Each lane publishes 32 bytes and reads those of all lanes of its warp until `leave`.
struct Offer {
    std::uint64_t words[4] = {};
};
const Offer* meet(const Offer& mine);
void leave();

extern dim3 thread_index, block_index, block_size, grid_size;
extern std::uint64_t block_count;        ///< blocks that began
extern std::size_t static_shared_bytes;  ///< that the block has used so far

/// Shared memory. It is static, because blocks run one after another, but a block does not see the values of
/// the one before: the first thread that gets it fills it with a pattern.
template <typename T>
struct Shared {
    T value;
    std::uint64_t block = 0;  ///< the block that uses it
    T& get() {
        if (block == block_count) return value;
        std::memset(&value, 0xee, sizeof value);
        block = block_count;
        static_shared_bytes += sizeof value;
        return value;
    }
};

template <typename T>
T shuffle(T value, int from_lane) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    Offer mine;
    std::memcpy(mine.words, &value, sizeof(T));
    const Offer* all = meet(mine);
    T result;
    std::memcpy(&result, all[from_lane].words, sizeof(T));
    leave();
    return result;
}

}  // namespace simt

#define threadIdx ::draftscope::kernels::cuda::simt::thread_index
#define blockIdx ::draftscope::kernels::cuda::simt::block_index
#define blockDim ::draftscope::kernels::cuda::simt::block_size
#define gridDim ::draftscope::kernels::cuda::simt::grid_size

inline void __syncthreads() {
    simt::sync_block();
}
inline void __threadfence() {}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return simt::shuffle(value, static_cast<int>(simt::thread_index.x % 32) ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from_lane) {
    return simt::shuffle(value, from_lane);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int offset) {
    const int lane = static_cast<int>(simt::thread_index.x % 32);
    return simt::shuffle(value, lane >= offset ? lane - offset : lane);
}
/// Combines the values of all lanes of the warp.
template <typename Combine>
unsigned reduce_warp(unsigned value, Combine combine) {
    simt::Offer mine;
    mine.words[0] = value;
    const simt::Offer* all = simt::meet(mine);
    auto result = static_cast<unsigned>(all[0].words[0]);
    for (int lane = 1; lane < 32; ++lane) result = combine(result, static_cast<unsigned>(all[lane].words[0]));
    simt::leave();
    return result;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    return reduce_warp(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
    return reduce_warp(value, [](unsigned a, unsigned b) { return a < b ? a : b; });
}
template <typename T>
T atomicAdd(T* at, T value) {
    const T before = *at;
    *at += value;
    return before;
}
inline int atomicMax(int* at, int value) {
    const int before = *at;
    *at = before > value ? before : value;
    return before;
}
inline unsigned atomicOr(std::uint32_t* at, std::uint32_t value) {
    const unsigned before = *at;
    *at |= value;
    return before;
}
inline unsigned atomicXor(std::uint32_t* at, std::uint32_t value) {
    const unsigned before = *at;
    *at ^= value;
    return before;
}
inline int __popc(std::uint32_t value) {
    return __builtin_popcount(value);
}
inline int __clzll(long long value) {
    return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline int __ffs(int value) {
    return __builtin_ffs(value);
}
inline float __uint_as_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline std::uint32_t __float_as_uint(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float cospif(float x) {
    return std::cos(3.14159265358979f * x);
}

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
    return {x, y};
}
template <typename T>
T __ldcs(const T* from) {
    return *from;
}
using std::max;
using std::min;

/// mma.m16n8k16 with the PTX manual's fragment layout; `value` reads one 16-bit value.
void mma_host(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1,
              float (*value)(std::uint16_t));

}  // namespace draftscope::kernels::cuda
