#include "tests/support/fake_cuda/fake_gpu.h"

#include <dlfcn.h>

#include <filesystem>

#include "tests/support/fake_cuda/fake_state.h"

namespace draftscope::testing {

Gpu& gpu() {
    static Gpu one;
    return one;
}

void set_fake_gpu(const FakeGpu& settings) {
    const std::scoped_lock lock(gpu().mutex);
    gpu().restart(settings);
}

FakeGpuUse fake_gpu_use() {
    const std::scoped_lock lock(gpu().mutex);
    FakeGpuUse use = gpu().use;
    use.allocations = static_cast<int>(gpu().device.size());
    use.pinned = static_cast<int>(gpu().pinned.size());
    use.streams = static_cast<int>(gpu().streams.size());
    use.events = static_cast<int>(gpu().events.size());
    use.graphs = static_cast<int>(gpu().graphs.size());
    use.executable_graphs = static_cast<int>(gpu().executables.size());
    return use;
}

void fail_fake_gpu_call(long later) {
    const std::scoped_lock lock(gpu().mutex);
    gpu().settings.failing_call = gpu().use.calls + later;
}
void fail_fake_gpu_work(long later) {
    const std::scoped_lock lock(gpu().mutex);
    gpu().settings.failing_work = gpu().use.work + later;
}

Result<std::unique_ptr<kernels::Backend>> open_fake_cuda(const kernels::CudaOptions& options) {
    return kernels::open_cuda(options);
}

kernels::DeviceProbe probe_fake_cuda() {
    return kernels::probe_cuda();
}

Result<kernels::DeviceBenchReport> bench_fake_cuda(const kernels::DeviceBenchOptions& options) {
    return kernels::bench_cuda(options);
}

bool load_fake_cublaslt() {
    // By its path: the program then finds it by its name, also under a sanitizer, whose dlopen() knows no
    // RPATH.
    const auto path =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake/libcublasLt.so.99";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    using Queue = void (*)(cudaStream_t, Work);
    const auto set_queue = reinterpret_cast<void (*)(Queue)>(dlsym(library, "fake_cublaslt_set_queue"));
    set_queue([](cudaStream_t stream, Work work) {
        const std::scoped_lock lock(gpu().mutex);
        (void)gpu().done(gpu().add(*stream, std::move(work)));
    });
    return true;
}

std::unique_ptr<kernels::Backend> make_simt_backend(unsigned order) {
    set_fake_gpu({.thread_order = order, .hides_memory = true});
    auto opened = open_fake_cuda({.graphs = false, .arena = false});
    return opened.ok() ? std::move(*opened) : nullptr;
}

}  // namespace draftscope::testing
