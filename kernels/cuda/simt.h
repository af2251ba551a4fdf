#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

namespace draftscope::kernels::cuda {

/// A stream that kernels are enqueued to.
struct LaunchStream {
    LaunchStream(cudaStream_t handle_in) : handle(handle_in) {}
    LaunchStream(cudaStream_t handle_in, bool* follows_kernel_in, std::uint32_t* tickets_in)
        : handle(handle_in), follows_kernel(follows_kernel_in), tickets(tickets_in) {}

    /// Notes that a kernel is enqueued. Returns whether it may start before the previous kernel ends, which
    /// it waits for itself if `waits`.
    bool note_kernel(bool waits) const {
        return follows_kernel != nullptr && std::exchange(*follows_kernel, true) && waits;
    }
    /// Keeps the next kernel from starting early. It reads what this one writes before it waits.
    void end_overlap() const {
        if (follows_kernel != nullptr) *follows_kernel = false;
    }

    cudaStream_t handle;
    /// Whether the latest item of the stream is a kernel. Null = kernels never overlap.
    bool* follows_kernel = nullptr;
    /// Zeros [max_tickets] for kernels whose last block merges the results of all, which leave zeros. Null =
    /// another kernel merges them.
    std::uint32_t* tickets = nullptr;
};
inline constexpr int max_tickets = 1024;

}  // namespace draftscope::kernels::cuda

/// Device code compiles for CUDA or, in tests on machines without a GPU, for the SIMT emulator.
///
/// DS_LAUNCH(kernel, grid, block, shared, stream, arguments...) enqueues a kernel that starts after the
/// previous one has ended. DS_LAUNCH_DEPENDENT enqueues one that calls wait_for_previous() in every thread
/// and may therefore start earlier (programmatic dependent launch).
#if defined(DS_SIMT_HOST)
#include DS_SIMT_HOST  // the emulator's header
#define DS_LAUNCH_KERNEL(can_wait, kernel, grid, block, shared, stream, ...)                \
    (::draftscope::kernels::cuda::simt::enqueue(                                            \
         reinterpret_cast<const void*>(kernel), (grid), (block), (shared), (stream).handle, \
         {.waits = (can_wait),                                                              \
          .early = (stream).note_kernel(can_wait),                                          \
          .file = __FILE__,                                                                 \
          .name = ::draftscope::kernels::cuda::simt::kernel_name<(kernel)>()},              \
         [=] { (kernel)(__VA_ARGS__); })                                                    \
         ? (void)0                                                                          \
         : (stream).end_overlap())
#define DS_DYNAMIC_SHARED(name) char* name = ::draftscope::kernels::cuda::simt::dynamic_shared()
#define DS_SHARED(type, name)                                             \
    static ::draftscope::kernels::cuda::simt::Shared<type> name##_memory; \
    auto& name = name##_memory.get()
#else
#include <type_traits>
/// Shared memory of a type, which may be an array: DS_SHARED(float[4], sums).
#define DS_SHARED(type, name) __shared__ std::type_identity_t<type> name
#define DS_LAUNCH_KERNEL(can_wait, kernel, grid, block, shared, stream, ...)                    \
    ::draftscope::kernels::cuda::launch_kernel((can_wait), (kernel), (grid), (block), (shared), \
                                               (stream)__VA_OPT__(, ) __VA_ARGS__)
#define DS_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]

#if defined(__CUDACC__)
namespace draftscope::kernels::cuda {

/// An error stays the runtime's last one.
template <typename... Parameters, typename... Arguments>
void launch_kernel(bool waits, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared,
                   const LaunchStream& stream, const Arguments&... arguments) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream.handle;
    config.attrs = &attribute;
    config.numAttrs = stream.note_kernel(waits) ? 1 : 0;
    if (cudaLaunchKernelEx(&config, kernel, arguments...) != cudaSuccess) stream.end_overlap();
}

}  // namespace draftscope::kernels::cuda
#endif
#endif
#define DS_LAUNCH(kernel, grid, block, shared, stream, ...) \
    DS_LAUNCH_KERNEL(false, kernel, grid, block, shared, stream __VA_OPT__(, ) __VA_ARGS__)
#define DS_LAUNCH_DEPENDENT(kernel, grid, block, shared, stream, ...) \
    DS_LAUNCH_KERNEL(true, kernel, grid, block, shared, stream __VA_OPT__(, ) __VA_ARGS__)
