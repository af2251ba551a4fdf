#include <cuda_runtime.h>

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

namespace draftscope::gpu_test {
namespace {

constexpr int count = 1 << 16;
constexpr int threads = 256;
float* data = nullptr;
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
    InPhase(const PhaseHooks& h, const char* phase) : hooks(h) { hooks.begin(hooks.self, phase); }
    ~InPhase() { hooks.end(hooks.self); }
};

}  // namespace

const char* prepare() {
    GPU_TRY(cudaMalloc(&data, count * sizeof(float)));
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

}  // namespace draftscope::gpu_test
