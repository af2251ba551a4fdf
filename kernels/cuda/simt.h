#pragma once

/// Device code compiles for CUDA or, in tests on machines without a GPU, for the SIMT emulator.
#if defined(DS_SIMT_HOST)
#include "kernels/cuda/simt_host.h"
#define DS_LAUNCH(kernel, grid, block, shared, stream, ...)                                            \
    ::draftscope::kernels::cuda::simt::enqueue(reinterpret_cast<const void*>(kernel), (grid), (block), \
                                               (shared), (stream), [=] { (kernel)(__VA_ARGS__); })
#define DS_DYNAMIC_SHARED(name) char* name = ::draftscope::kernels::cuda::simt::dynamic_shared()
#define DS_SHARED(type, name)                                             \
    static ::draftscope::kernels::cuda::simt::Shared<type> name##_memory; \
    auto& name = name##_memory.get()
#else
#include <cuda_runtime_api.h>

#include <type_traits>
/// Shared memory of a type, which may be an array: DS_SHARED(float[4], sums).
#define DS_SHARED(type, name) __shared__ std::type_identity_t<type> name
#define DS_LAUNCH(kernel, grid, block, shared, stream, ...) \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define DS_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif
