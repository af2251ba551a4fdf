#include <cuda_runtime.h>

#include <vector>

#include "tests/gpu/graph_workload.h"

__global__ void backbone_kernel(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; i < n && k < 64; ++k) x[i] = x[i] * 0.999f + 1.0f;
}
__global__ void head_kernel(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; i < n && k < 256; ++k) x[i] = x[i] * 0.998f + 2.0f;
}
__global__ void verify_kernel(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; i < n && k < 512; ++k) x[i] = x[i] * 0.997f + 3.0f;
}

// Each reads what every block of the kernel before it wrote, and may start before that kernel ends.
__device__ void mix(float* to, const float* from, int n, float add) {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[n - 1 - i] * 0.75f + from[(i + n / 2) % n] * 0.25f + add;
}
__global__ void backbone_kernel(float* to, const float* from, int n) {
    mix(to, from, n, 1.0f);
}
__global__ void verify_kernel(float* to, const float* from, int n) {
    mix(to, from, n, 0.5f);
}

namespace draftscope::gpu_test {
namespace {

constexpr int count = 1 << 16;
constexpr int threads = 256;
float *data = nullptr, *other = nullptr;
cudaStream_t main_stream = nullptr, side_stream = nullptr;
cudaEvent_t fork_event = nullptr, join_event = nullptr;
cudaGraph_t graph = nullptr;
cudaGraphExec_t execs[2] = {};

#define GPU_TRY(call)                          \
    do {                                       \
        const cudaError_t code = (call);       \
        if (code != cudaSuccess) return #call; \
    } while (false)

struct InPhase {
    const PhaseHooks& hooks;
    InPhase(const PhaseHooks& h, const char* phase) : hooks(h) {
        if (hooks.begin != nullptr) hooks.begin(hooks.self, phase);
    }
    ~InPhase() {
        if (hooks.end != nullptr) hooks.end(hooks.self);
    }
};

using Mix = void (*)(float*, const float*, int);

/// Enqueues one kernel. An early one may start while the kernel before it runs.
const char* launch_mix(Mix kernel, float* to, float* from, bool early) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = count / threads;
    config.blockDim = threads;
    config.stream = main_stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    const float* read = from;
    GPU_TRY(cudaLaunchKernelEx(&config, kernel, to, read, count));
    return "";
}

/// Enqueues pairs of kernels, each in its phase.
const char* launch_pairs(const PhaseHooks& hooks, bool early) {
    const char* error = "";
    for (int pair = 0; pair < early_pairs && *error == '\0'; ++pair) {
        {
            const InPhase phase(hooks, "backbone");
            error = launch_mix(backbone_kernel, other, data, early && pair > 0);
        }
        if (*error != '\0') break;
        const InPhase phase(hooks, "verify");
        error = launch_mix(verify_kernel, data, other, early);
    }
    return error;
}

/// Fills the data with different values.
const char* reset_data() {
    std::vector<float> values(count);
    for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1009);
    GPU_TRY(cudaMemcpy(data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    return "";
}

}  // namespace

const char* prepare() {
    GPU_TRY(cudaMalloc(&data, count * sizeof(float)));
    GPU_TRY(cudaMalloc(&other, count * sizeof(float)));
    GPU_TRY(cudaMemset(data, 0, count * sizeof(float)));
    GPU_TRY(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    GPU_TRY(cudaStreamCreateWithFlags(&side_stream, cudaStreamNonBlocking));
    GPU_TRY(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
    GPU_TRY(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
    return "";
}

const char* capture(const PhaseHooks& hooks) {
    GPU_TRY(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    {
        const InPhase phase(hooks, "backbone");
        backbone_kernel<<<count / threads, threads, 0, main_stream>>>(data, count);
    }
    {
        const InPhase phase(hooks, "head");
        GPU_TRY(cudaEventRecord(fork_event, main_stream));
        GPU_TRY(cudaStreamWaitEvent(side_stream, fork_event));
        head_kernel<<<count / threads / 2, threads, 0, main_stream>>>(data, count / 2);
        head_kernel<<<count / threads / 2, threads, 0, side_stream>>>(data + count / 2, count / 2);
        GPU_TRY(cudaEventRecord(join_event, side_stream));
        GPU_TRY(cudaStreamWaitEvent(main_stream, join_event));
    }
    {
        const InPhase phase(hooks, "verify");
        GPU_TRY(cudaMemsetAsync(data, 0, 1024, main_stream));
        verify_kernel<<<count / threads, threads, 0, main_stream>>>(data, count);
    }
    GPU_TRY(cudaStreamEndCapture(main_stream, &graph));
    for (cudaGraphExec_t& exec : execs) GPU_TRY(cudaGraphInstantiate(&exec, graph, 0));
    return "";
}

const char* launch_graph(int which) {
    GPU_TRY(cudaGraphLaunch(execs[which], main_stream));
    GPU_TRY(cudaStreamSynchronize(main_stream));
    return "";
}

const char* launch_eagerly(const PhaseHooks& hooks) {
    const InPhase phase(hooks, "backbone");
    backbone_kernel<<<count / threads, threads, 0, main_stream>>>(data, count);
    GPU_TRY(cudaGetLastError());
    GPU_TRY(cudaStreamSynchronize(main_stream));
    return "";
}

const char* capture_again(const PhaseHooks& hooks) {
    for (cudaGraphExec_t& exec : execs) GPU_TRY(cudaGraphExecDestroy(exec));
    GPU_TRY(cudaGraphDestroy(graph));
    return capture(hooks);
}

const char* capture_early(const PhaseHooks& hooks) {
    GPU_TRY(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    const char* error = launch_pairs(hooks, true);
    const cudaError_t ended = cudaStreamEndCapture(main_stream, &graph);
    if (*error != '\0') return error;
    GPU_TRY(ended);
    for (cudaGraphExec_t& exec : execs) GPU_TRY(cudaGraphInstantiate(&exec, graph, 0));
    return "";
}

const char* compare_early(bool& same) {
    std::vector<float> plain(count), early(count);
    if (const char* error = reset_data(); *error != '\0') return error;
    if (const char* error = launch_pairs({}, false); *error != '\0') return error;
    GPU_TRY(cudaStreamSynchronize(main_stream));
    GPU_TRY(cudaMemcpy(plain.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
    same = true;
    for (int i = 0; i < 100 && same; ++i) {
        if (const char* error = reset_data(); *error != '\0') return error;
        if (const char* error = launch_graph(i % 2); *error != '\0') return error;
        GPU_TRY(cudaMemcpy(early.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
        same = plain == early;
    }
    return "";
}

}  // namespace draftscope::gpu_test
