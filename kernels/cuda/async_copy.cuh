#pragma once

#include "kernels/cuda/common.cuh"

/// Copies from global to shared memory that need no registers and do not wait for each other.
namespace draftscope::kernels::cuda {

/// Copies 16 bytes; both addresses are multiples of 16.
template <typename T>
__device__ __forceinline__ void copy_async(T* to, const T* from) {
#if defined(DS_SIMT_HOST)
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
#else
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#endif
}
/// Ends a group of this thread's copies, which may be empty.
__device__ __forceinline__ void end_of_group() {
#if !defined(DS_SIMT_HOST)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for all groups of this thread except the latest Pending.
template <int Pending>
__device__ __forceinline__ void wait_for_groups() {
#if !defined(DS_SIMT_HOST)
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace draftscope::kernels::cuda
