#include <cmath>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.h"

/// Kernels that measure a GPU: streams of reads, launches, random values.
namespace draftscope::kernels::cuda {
namespace {

constexpr int read_threads = 256;

/// Reads data that is used once: L2 evicts such lines first.
template <Reads How>
__device__ __forceinline__ uint4 read_line(const uint4* from) {
    return How == Reads::evict_first ? __ldcs(from) : __ldcg(from);
}

/// Eight independent 16-byte loads per thread and turn.
template <Reads How>
__global__ void __launch_bounds__(read_threads)
    read_kernel(const uint4* data, std::size_t count, float* sink) {
    constexpr int ahead = 8;
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * read_threads;
    unsigned folded = 0;
    std::size_t i = static_cast<std::size_t>(blockIdx.x) * read_threads + threadIdx.x;
    for (; i + (ahead - 1) * step < count; i += ahead * step) {
        uint4 v[ahead];
#pragma unroll
        for (int a = 0; a < ahead; ++a) v[a] = read_line<How>(data + i + a * step);
#pragma unroll
        for (int a = 0; a < ahead; ++a) folded ^= v[a].x ^ v[a].y ^ v[a].z ^ v[a].w;
    }
    for (; i < count; i += step) {
        const uint4 v = read_line<How>(data + i);
        folded ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    // Almost never true: keeps the loads alive.
    if (folded == 0x9e3779b9u && threadIdx.x > read_threads) *sink = 1.0f;
}

__global__ void empty_kernel() {}

/// The next kernel may start at once, and waits for the previous one.
__global__ void early_kernel() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

/// Box-Muller over a hash of the index.
__global__ void fill_kernel(half_t* data, std::size_t count, float scale, std::uint32_t seed) {
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += step) {
        const std::uint32_t a = mix_bits(static_cast<std::uint32_t>(i) * 2 + seed);
        const std::uint32_t b = mix_bits(a ^ static_cast<std::uint32_t>(i >> 31) ^ 0x9e3779b9u);
        const float u = (static_cast<float>(a >> 8) + 0.5f) / 16777216.0f;
        const float v = static_cast<float>(b >> 8) / 16777216.0f;
        data[i] = to_bf16(scale * sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
    }
}

}  // namespace

void launch_read(const void* data, std::size_t bytes, Reads how, float* sink, cudaStream_t stream) {
    constexpr unsigned blocks = 132 * 8;
    const auto* from = static_cast<const uint4*>(data);
    const std::size_t count = bytes / sizeof(uint4);
    if (how == Reads::evict_first)
        DS_LAUNCH(read_kernel<Reads::evict_first>, blocks, read_threads, 0, stream, from, count, sink);
    else
        DS_LAUNCH(read_kernel<Reads::plain>, blocks, read_threads, 0, stream, from, count, sink);
}

void launch_empty(cudaStream_t stream) {
    DS_LAUNCH(empty_kernel, 1, 32, 0, stream);
}

void launch_early(cudaStream_t stream) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 32;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    (void)cudaLaunchKernelEx(&config, early_kernel);  // the next op reports the error
}

int largest_cluster() {
    cudaLaunchConfig_t config{};
    config.gridDim = 64;
    config.blockDim = 256;
    int blocks = 0;
    const bool known = cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed,
                                            1) == cudaSuccess &&
                       cudaOccupancyMaxPotentialClusterSize(&blocks, empty_kernel, &config) == cudaSuccess;
    if (!known) (void)cudaGetLastError();  // the GPU has no clusters
    return known ? blocks : 0;
}

bool can_overlap_kernels() {
    cudaFuncAttributes found{};
    const bool known = cudaFuncGetAttributes(&found, early_kernel) == cudaSuccess;
    if (!known) (void)cudaGetLastError();
    return known && found.ptxVersion >= 90;
}

void launch_fill_normal(half_t* data, std::size_t count, float scale, std::uint64_t seed,
                        cudaStream_t stream) {
    DS_LAUNCH(fill_kernel, 2048, 256, 0, stream, data, count, scale,
              static_cast<std::uint32_t>(seed * 0x9e3779b9u));
}

}  // namespace draftscope::kernels::cuda
