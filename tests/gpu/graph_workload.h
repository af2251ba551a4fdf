#pragma once

/// Work for the tests that need a GPU, behind plain functions so that the tests need no CUDA headers.
namespace draftscope::gpu_test {

/// Called before each part is captured or launched and after it: "backbone", "head", "verify".
struct PhaseHooks {
    void (*begin)(void* self, const char* phase) = nullptr;
    void (*end)(void* self) = nullptr;
    void* self = nullptr;
};

/// "" or the CUDA error. Every function below reports the first failure this way.
const char* prepare();
/// Captures kernels backbone_kernel, head_kernel (twice, on a second stream joined by events), a memset and
/// verify_kernel into one graph, and instantiates it twice.
const char* capture(const PhaseHooks& hooks);
/// Launches executable `which` and waits.
const char* launch_graph(int which);
/// Launches backbone_kernel eagerly within its phase, and waits.
const char* launch_eagerly(const PhaseHooks& hooks);
/// Destroys both executables and captures anew, so that node ids may come back.
const char* capture_again(const PhaseHooks& hooks);

inline constexpr int kernels_per_graph = 4;

}  // namespace draftscope::gpu_test
