#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/fake_cuda/fake_state.h"
#include "tests/support/fake_cuda/kernel_figures.h"

namespace {

using namespace draftscope::testing;
using draftscope::kernels::cuda::simt::Launch;

constexpr int runtime_version = 13000;

/// Begins a call that can fail on a working GPU, and returns from it where it does.
#define DS_CALL                               \
    const std::scoped_lock lock(gpu().mutex); \
    if (const cudaError_t refused = gpu().begin(); refused != cudaSuccess) return gpu().done(refused)

const Block* block_of(const std::map<char*, Block>& blocks, const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    auto found = blocks.upper_bound(const_cast<char*>(at));
    if (found == blocks.begin()) return nullptr;
    --found;
    const bool inside = at >= found->first && at + bytes <= found->first + found->second.bytes;
    return inside ? &found->second : nullptr;
}
bool on_device(const void* data, std::size_t bytes) {
    return block_of(gpu().device, data, bytes) != nullptr;
}

cudaError_t allocate(std::map<char*, Block>& blocks, void** data, std::size_t bytes) {
    if (gpu().refuses_unsafe_call()) return gpu().done(cudaErrorStreamCaptureUnsupported);
    std::size_t held = 0;
    for (const auto& [at, block] : gpu().device) held += block.bytes;
    if (&blocks == &gpu().device && held + bytes > gpu().settings.memory_bytes)
        return gpu().done(cudaErrorMemoryAllocation);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 15) / 16 * 16;
    const std::size_t mapped = (rounded + page - 1) / page * page;
    auto* map = static_cast<char*>(
        mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (map == MAP_FAILED) return gpu().done(cudaErrorMemoryAllocation);
    mprotect(map + mapped, page, PROT_NONE);
    char* at = map + mapped - rounded;
    // Large pieces stay untouched: zeros instead of a pattern.
    if (rounded <= std::size_t{1} << 20) std::memset(at, 0xee, rounded);
    blocks[at] = {map, mapped + page, rounded};
    *data = at;
    return cudaSuccess;
}
cudaError_t release(std::map<char*, Block>& blocks, void* data) {
    if (data == nullptr) return cudaSuccess;
    if (gpu().refuses_unsafe_call()) return gpu().done(cudaErrorStreamCaptureUnsupported);
    const auto found = blocks.find(static_cast<char*>(data));
    if (found == blocks.end())
        return gpu().fault("memory freed that is not allocated", cudaErrorInvalidValue);
    gpu().drain_all();  // the call waits for the memory's uses
    munmap(found->second.map, found->second.mapped);
    blocks.erase(found);
    return gpu().sticky;
}

/// Returns whether the handle is in use, and notes a fault if not.
template <typename Handles, typename Handle>
bool is_known(const Handles& handles, Handle handle, const char* what) {
    if (handles.contains(handle)) return true;
    (void)gpu().fault(fmt::format("{}: the handle is not in use", what), cudaErrorInvalidResourceHandle);
    return false;
}

cudaError_t create_event(cudaEvent_t* event, bool timed) {
    auto made = std::make_shared<FakeEvent>();
    made->timed = timed;
    *event = made.get();
    gpu().events[made.get()] = std::move(made);
    return cudaSuccess;
}

/// Checks a launch against the limits of sm_90.
cudaError_t check_limits(const dim3& grid, const dim3& block, std::size_t shared, const void* kernel,
                         const Launch& launch) {
    const auto threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads < 1 || threads > 1024 || block.z > 64 || grid.x < 1 || grid.x > 0x7fffffff || grid.y < 1 ||
        grid.y > 65535 || grid.z < 1 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    const auto raised = gpu().dynamic_shared.find(kernel);
    const bool opted_in = raised != gpu().dynamic_shared.end();
    if (shared > (opted_in ? static_cast<std::size_t>(raised->second) : plain_shared_bytes))
        return cudaErrorInvalidConfiguration;
    const auto figures = find_kernel_figures(launch.file, launch.name);
    if (figures) {
        const cudaError_t refused = check_resources(*figures, static_cast<int>(threads), shared, opted_in);
        if (refused != cudaSuccess || threads <= static_cast<unsigned>(figures->threads)) return refused;
        return gpu().fault(fmt::format("{} launches {} with {} threads, tools/sass_budgets.json says {}",
                                       launch.file, launch.name, threads, figures->threads),
                           cudaErrorInvalidConfiguration);
    }
    // Kernels of fake_probe.cpp have no name, and nothing has figures where the sources are missing.
    if (*launch.name == '\0' || kernel_figures().empty()) return cudaSuccess;
    return gpu().fault(fmt::format("{} launches {}, which tools/sass_budgets.json lacks: "
                                   "run tools/sass_budget.py --write",
                                   launch.file, launch.name),
                       cudaErrorInvalidConfiguration);
}

/// Ends the program if a kernel has more static shared memory than its figures: then they are out of date.
void check_static_shared(const Launch& launch, std::size_t used) {
    const auto figures = find_kernel_figures(launch.file, launch.name);
    if (!figures || used <= figures->static_shared) return;
    fmt::print(stderr,
               "fake GPU: {} {} uses {} bytes of static shared memory, tools/sass_budgets.json says {}: "
               "run tools/sass_budget.py --write\n",
               launch.file, launch.name, used, figures->static_shared);
    std::abort();
}

void leave_capture(Capture& capture) {
    for (FakeStream* stream : capture.streams) {
        stream->last.clear();
        ++stream->items_put;
        stream->capture.reset();
    }
}

/// Returns whether every node precedes the end of the stream that began the capture.
bool is_joined(const Capture& capture) {
    std::vector<char> reached(capture.nodes.size(), 0);
    std::vector<int> open = capture.origin->last;
    while (!open.empty()) {
        const int node = open.back();
        open.pop_back();
        if (std::exchange(reached[node], 1) != 0) continue;
        open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
    }
    return std::ranges::all_of(reached, [](char one) { return one != 0; });
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorLaunchOutOfResources:
            return "cudaErrorLaunchOutOfResources";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
        case cudaErrorStreamCaptureUnjoined:
            return "cudaErrorStreamCaptureUnjoined";
        case cudaErrorStreamCaptureIsolation:
            return "cudaErrorStreamCaptureIsolation";
        case cudaErrorCapturedEvent:
            return "cudaErrorCapturedEvent";
        default:
            return "cudaErrorUnknown";
    }
}
const char* cudaGetErrorString(cudaError_t) {
    return "the fake GPU refused a call";
}
cudaError_t cudaGetLastError() {
    const std::scoped_lock lock(gpu().mutex);
    if (gpu().sticky != cudaSuccess) return gpu().sticky;
    return std::exchange(gpu().last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
    const std::scoped_lock lock(gpu().mutex);
    return gpu().sticky != cudaSuccess ? gpu().sticky : gpu().last;
}

cudaError_t cudaGetDeviceCount(int* count) {
    const std::scoped_lock lock(gpu().mutex);
    *count = gpu().settings.devices;
    if (gpu().settings.driver < runtime_version) return gpu().done(cudaErrorInsufficientDriver);
    return *count > 0 ? cudaSuccess : gpu().done(cudaErrorNoDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
    DS_CALL;
    *found = {};
    std::strcpy(found->name, "kernels on the host");
    found->major = gpu().settings.major;
    found->multiProcessorCount = gpu().settings.processors;
    found->totalGlobalMem = gpu().settings.memory_bytes;
    found->sharedMemPerBlockOptin = max_shared_bytes;
    found->l2CacheSize = 50 << 20;
    found->persistingL2CacheMaxSize = 30 << 20;
    found->accessPolicyMaxWindowSize = 128 << 20;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
    DS_CALL;
    return ordinal == 0 ? cudaSuccess : gpu().done(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = gpu().settings.driver;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = runtime_version;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) {
    DS_CALL;
    return cudaSuccess;
}

cudaError_t cudaCtxResetPersistingL2Cache() {
    DS_CALL;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    DS_CALL;
    return allocate(gpu().device, data, bytes);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
    DS_CALL;
    return allocate(gpu().pinned, data, bytes);
}
cudaError_t cudaFree(void* data) {
    const std::scoped_lock lock(gpu().mutex);
    return release(gpu().device, data);
}
cudaError_t cudaFreeHost(void* data) {
    const std::scoped_lock lock(gpu().mutex);
    return release(gpu().pinned, data);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* data) {
    DS_CALL;
    found->type = on_device(data, 1)                           ? cudaMemoryTypeDevice
                  : block_of(gpu().pinned, data, 1) != nullptr ? cudaMemoryTypeHost
                                                               : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaMemsetAsync")) return gpu().last;
    if (!on_device(data, bytes)) return gpu().done(cudaErrorInvalidValue);
    return gpu().done(gpu().add(*stream, [=] { std::memset(data, value, bytes); }));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaMemcpyAsync")) return gpu().last;
    if ((kind != cudaMemcpyDeviceToHost) != on_device(to, bytes) ||
        (kind != cudaMemcpyHostToDevice) != on_device(from, bytes))
        return gpu().done(cudaErrorInvalidValue);
    if (kind != cudaMemcpyDeviceToDevice && !stream->capture) {
        ++(kind == cudaMemcpyHostToDevice ? gpu().use.uploads : gpu().use.downloads);
        gpu().use.switches += std::exchange(stream->kernel_last, false) ? 1 : 0;
    }
    const void* host = kind == cudaMemcpyHostToDevice ? from : to;
    const bool pageable = kind != cudaMemcpyDeviceToDevice && block_of(gpu().pinned, host, bytes) == nullptr;
    if (!pageable) return gpu().done(gpu().add(*stream, [=] { std::memmove(to, from, bytes); }));
    if (stream->capture) {
        stream->capture->invalid = true;
        return gpu().done(cudaErrorStreamCaptureUnsupported);
    }
    if (kind == cudaMemcpyDeviceToHost) {  // returns when the copy is complete
        const cudaError_t added = gpu().add(*stream, [=] { std::memcpy(to, from, bytes); });
        gpu().drain(*stream);
        return gpu().done(added);
    }
    const auto* bytes_now = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(bytes_now, bytes_now + bytes);
    return gpu().done(gpu().add(*stream, [=] { std::memcpy(to, staged->data(), bytes); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    DS_CALL;
    auto made = std::make_unique<FakeStream>();
    *stream = made.get();
    gpu().streams[made.get()] = std::move(made);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::scoped_lock lock(gpu().mutex);
    if (!is_known(gpu().streams, stream, "cudaStreamDestroy")) return gpu().last;
    gpu().drain(*stream);
    gpu().streams.erase(stream);
    return gpu().sticky;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaStreamSynchronize")) return gpu().last;
    if (stream->capture) {
        stream->capture->invalid = true;
        return gpu().done(cudaErrorStreamCaptureUnsupported);
    }
    ++gpu().use.waits;
    gpu().drain(*stream);
    return gpu().done(gpu().sticky);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaStreamWaitEvent") ||
        !is_known(gpu().events, event, "cudaStreamWaitEvent"))
        return gpu().last;
    if (event->captured) {
        const auto capture = event->capture.lock();
        if (!capture) return gpu().done(cudaErrorCapturedEvent);  // of a capture that has ended
        if (stream->capture && stream->capture != capture) {
            stream->capture->invalid = capture->invalid = true;
            return gpu().done(cudaErrorStreamCaptureMerge);
        }
        ++stream->items_put;
        stream->capture = capture;
        capture->streams.insert(stream);
        stream->last.insert(stream->last.end(), event->after.begin(), event->after.end());
        return cudaSuccess;
    }
    if (stream->capture) {
        stream->capture->invalid = true;
        return gpu().done(cudaErrorStreamCaptureIsolation);
    }
    if (event->recorded > 0) gpu().put(*stream, {.awaits = gpu().events[event], .version = event->recorded});
    return cudaSuccess;
}
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID, const cudaStreamAttrValue*) {
    DS_CALL;
    return is_known(gpu().streams, stream, "cudaStreamSetAttribute") ? cudaSuccess : gpu().last;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    DS_CALL;
    return create_event(event, true);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    DS_CALL;
    return create_event(event, (flags & cudaEventDisableTiming) == 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::scoped_lock lock(gpu().mutex);
    if (!is_known(gpu().events, event, "cudaEventDestroy")) return gpu().last;
    gpu().events.erase(event);  // streams keep it until they have reached it
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaEventRecord") ||
        !is_known(gpu().events, event, "cudaEventRecord"))
        return gpu().last;
    event->captured = stream->capture != nullptr;
    if (event->captured) {
        ++stream->items_put;
        event->capture = stream->capture;
        event->after = stream->last;
        return gpu().done(stream->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
    gpu().use.marks += event->timed ? 1 : 0;
    event->pending.insert(++event->recorded);
    gpu().put(*stream, {.records = gpu().events[event], .version = event->recorded});
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    const std::scoped_lock lock(gpu().mutex);
    for (const cudaEvent_t event : {from, to}) {
        if (!is_known(gpu().events, event, "cudaEventElapsedTime")) return gpu().last;
        if (event->captured) return gpu().done(cudaErrorCapturedEvent);
        if (!event->timed || event->recorded == 0) return gpu().done(cudaErrorInvalidResourceHandle);
        if (!event->pending.empty()) return gpu().done(cudaErrorNotReady);
    }
    *ms = static_cast<float>(to->ms - from->ms);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaStreamBeginCapture")) return gpu().last;
    if (stream->capture) return gpu().done(cudaErrorStreamCaptureUnsupported);
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->streams = {stream};
    stream->last.clear();
    ++stream->items_put;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::scoped_lock lock(gpu().mutex);
    *graph = nullptr;
    if (!is_known(gpu().streams, stream, "cudaStreamEndCapture")) return gpu().last;
    if (!stream->capture) return gpu().done(cudaErrorInvalidValue);
    if (stream->capture->origin != stream) return gpu().done(cudaErrorStreamCaptureUnmatched);
    const std::shared_ptr<Capture> capture = stream->capture;
    const bool joined = is_joined(*capture);
    leave_capture(*capture);
    // A call that fails ends the capture as well.
    if (const cudaError_t refused = gpu().begin(); refused != cudaSuccess) return gpu().done(refused);
    if (capture->invalid) return gpu().done(cudaErrorStreamCaptureInvalidated);
    if (!joined) return gpu().done(cudaErrorStreamCaptureUnjoined);
    auto made = std::make_unique<FakeGraph>();
    made->nodes = std::make_shared<const Nodes>(std::move(capture->nodes));
    *graph = made.get();
    gpu().graphs[made.get()] = std::move(made);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    DS_CALL;
    if (!is_known(gpu().graphs, graph, "cudaGraphInstantiate")) return gpu().last;
    auto made = std::make_unique<FakeGraphExec>();
    made->nodes = graph->nodes;
    *exec = made.get();
    gpu().executables[made.get()] = std::move(made);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const std::scoped_lock lock(gpu().mutex);
    if (!is_known(gpu().graphs, graph, "cudaGraphDestroy")) return gpu().last;
    gpu().graphs.erase(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    DS_CALL;
    if (!is_known(gpu().streams, stream, "cudaGraphLaunch") ||
        !is_known(gpu().executables, exec, "cudaGraphLaunch"))
        return gpu().last;
    if (stream->capture) return gpu().done(cudaErrorStreamCaptureUnsupported);
    ++gpu().use.graph_launches;
    stream->kernel_last = true;
    gpu().put(*stream, {.graph = exec->nodes});
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    const std::scoped_lock lock(gpu().mutex);
    if (!is_known(gpu().executables, exec, "cudaGraphExecDestroy")) return gpu().last;
    for (auto& [stream, owner] : gpu().streams)
        for (const Item& item : stream->items)
            if (item.graph == exec->nodes) gpu().use.faults.emplace_back("a graph destroyed before it ran");
    gpu().executables.erase(exec);
    return cudaSuccess;
}

cudaError_t fake_set_kernel_attribute(const void* kernel, cudaFuncAttribute, int value) {
    DS_CALL;
    if (value > static_cast<int>(max_shared_bytes)) return gpu().done(cudaErrorInvalidValue);
    gpu().dynamic_shared[kernel] = value;
    return cudaSuccess;
}

namespace draftscope::kernels::cuda::simt {

namespace {

void protect_memory(const void* at, int access) {
    for (const auto& [first, one] : gpu().device)
        if (at == nullptr || &one == block_of(gpu().device, at, 1))
            mprotect(one.map, one.mapped - static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), access);
}
/// A kernel never really starts before the previous one ends. Memory is hidden from it instead until it
/// waits.
const MemoryGuard* guard_of(Launch launch) {
    static const MemoryGuard waits_only;
    static const MemoryGuard hides{[] { protect_memory(nullptr, PROT_NONE); },
                                   [](const void* at) { protect_memory(at, PROT_READ | PROT_WRITE); }};
    if (launch.waits && gpu().settings.hides_memory) return &hides;
    return launch.early ? &waits_only : nullptr;
}

}  // namespace

bool enqueue(const void* kernel, const dim3& grid, const dim3& block, std::size_t shared_bytes,
             cudaStream_t stream, Launch launch, std::function<void()> call) {
    const std::scoped_lock lock(gpu().mutex);
    const auto try_launch = [&]() -> cudaError_t {
        if (const cudaError_t refused = gpu().begin(); refused != cudaSuccess) return refused;
        if (!is_known(gpu().streams, stream, "a launch")) return gpu().last;
        if (const cudaError_t refused = check_limits(grid, block, shared_bytes, kernel, launch);
            refused != cudaSuccess)
            return refused;
        // Kernels are loaded on first use, which may wait.
        if (gpu().loaded.insert(kernel).second && stream->capture) {
            stream->capture->invalid = true;
            return cudaErrorStreamCaptureUnsupported;
        }
        if (launch.early && stream->kernel_put != stream->items_put)
            return gpu().fault("a kernel starts early after something that is not a kernel",
                               cudaErrorInvalidValue);
        ++gpu().use.launches;
        if (launch.early) ++gpu().use.early_launches;
        stream->kernel_last = stream->kernel_last || !stream->capture;
        const cudaError_t added = gpu().add(*stream, [=, call = std::move(call)] {
            check_static_shared(launch, run(grid, block, shared_bytes, call, guard_of(launch)));
        });
        stream->kernel_put = stream->items_put;
        return added;
    };
    return gpu().done(try_launch()) == cudaSuccess;
}

}  // namespace draftscope::kernels::cuda::simt
