#pragma once

/// GPU work for tests, behind plain functions so that the tests need no CUDA headers.
namespace draftscope::gpu_test {

/// Called before and after each part is captured or launched: "backbone", "head", "verify". Both may be null.
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

/// Captures a graph whose kernels may start early, before the one before them ends. (Programmatic dependent
/// launch, sm_90 and later.) They are backbone_kernel and verify_kernel, `early_pairs` times.
const char* capture_early(const PhaseHooks& hooks);
/// Sets `same` to whether a hundred launches of the graph of capture_early() compute what plain launches do.
const char* compare_early(bool& same);

inline constexpr int kernels_per_graph = 4, early_pairs = 8;

}  // namespace draftscope::gpu_test
