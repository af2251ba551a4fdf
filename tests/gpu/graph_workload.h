#pragma once

/// GPU work for tests, behind plain functions so that the tests need no CUDA headers.
namespace draftscope::gpu_test {

/// Called before and after each part is captured or launched: "backbone", "head", "verify".
struct PhaseHooks {
    void (*begin)(void* self, const char* phase) = nullptr;
    void (*end)(void* self) = nullptr;
    void* self = nullptr;
};

/// Returns "" or the CUDA error, as every function below does.
const char* prepare();
/// Captures three kernels and a memset into one graph and instantiates it twice. The kernels are
/// backbone_kernel, head_kernel (twice, on a second stream joined by events) and verify_kernel.
const char* capture(const PhaseHooks& hooks);
/// Launches executable `which` and waits.
const char* launch_graph(int which);
/// Launches backbone_kernel eagerly within its phase, and waits.
const char* launch_eagerly(const PhaseHooks& hooks);
/// Destroys both executables and captures again, so that node ids may be reused.
const char* capture_again(const PhaseHooks& hooks);

inline constexpr int kernels_per_graph = 4;

}  // namespace draftscope::gpu_test
