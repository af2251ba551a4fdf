#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend/arena.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/library_product.h"
#include "kernels/run_ops.h"

namespace draftscope::kernels {
namespace {

/// Transfers up to this size go through pinned memory and do not wait for the stream.
constexpr std::size_t staging_bytes = std::size_t{64} << 20;
/// Graphs kept before the oldest generation is dropped.
constexpr std::size_t max_graphs = 512;

std::string version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// CUDA cannot reuse a device in a process after most errors, such as those of a kernel or of a lost device.
constexpr std::string_view lost_hint =
    "; restart the program to use this GPU again (dmesg | grep Xid says what happened to it)";

std::string error_text(cudaError_t error) {
    return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

/// Pinned memory allocated in order. All of it is free again after the stream was synchronised.
class Staging {
  public:
    ~Staging() {
        if (data_ != nullptr) cudaFreeHost(data_);
    }
    /// Returns null if the buffer is full, or without pinned memory.
    std::byte* take(std::size_t bytes) {
        if (data_ == nullptr && !attempted_) {
            attempted_ = true;
            if (cudaMallocHost(reinterpret_cast<void**>(&data_), staging_bytes) != cudaSuccess) {
                data_ = nullptr;
                (void)cudaGetLastError();
            }
        }
        const std::size_t rounded = (bytes + 255) / 256 * 256;
        if (data_ == nullptr || used_ + rounded > staging_bytes) return nullptr;
        return data_ + std::exchange(used_, used_ + rounded);
    }
    void clear() { used_ = 0; }

  private:
    std::byte* data_ = nullptr;
    std::size_t used_ = 0;
    bool attempted_ = false;
};

/// Whether kernels may start before the previous one ends (programmatic dependent launch).
/// DRAFTSCOPE_GPU_OVERLAP=0 switches it off.
bool may_overlap_kernels() {
    const char* set = std::getenv("DRAFTSCOPE_GPU_OVERLAP");
    return (set == nullptr || std::string_view(set) != "0") && cuda::can_overlap_kernels();
}

/// CUDA's current device is per thread; a new side stream's thread has not set it yet.
void use_gpu(int ordinal) {
    thread_local int chosen = -1;
    if (chosen == ordinal) return;
    if (cudaSetDevice(ordinal) == cudaSuccess) chosen = ordinal;
}

class CudaTimer final : public DeviceTimer {
  public:
    /// Marks go to what `stream` is at the time: work on the side stream is timed there.
    /// `follows_kernel` becomes false, as the stream's latest item is no kernel then.
    CudaTimer(const cudaStream_t& stream, int ordinal, bool& follows_kernel)
        : stream_(stream), ordinal_(ordinal), follows_kernel_(follows_kernel) {}
    ~CudaTimer() override {
        for (cudaEvent_t event : events_)
            if (event != nullptr) cudaEventDestroy(event);
    }
    std::uint32_t mark() override {
        use_gpu(ordinal_);  // an event belongs to the thread's current GPU
        follows_kernel_ = false;
        if (used_ == events_.size()) {
            cudaEvent_t event = nullptr;
            if (cudaEventCreate(&event) != cudaSuccess) event = nullptr;
            events_.push_back(event);
        }
        if (events_[used_] == nullptr || cudaEventRecord(events_[used_], stream_) != cudaSuccess)
            (void)cudaGetLastError();  // elapsed_ns() then reports that the time is unknown
        return static_cast<std::uint32_t>(used_++);
    }
    TimeNs elapsed_ns(std::uint32_t from, std::uint32_t to) override {
        float ms = 0;
        if (from >= used_ || to >= used_ || events_[from] == nullptr || events_[to] == nullptr ||
            cudaEventElapsedTime(&ms, events_[from], events_[to]) != cudaSuccess) {
            (void)cudaGetLastError();
            return -1;
        }
        return static_cast<TimeNs>(static_cast<double>(ms) * 1e6);
    }
    void reset() override { used_ = 0; }

  private:
    const cudaStream_t& stream_;
    int ordinal_;
    bool& follows_kernel_;
    std::vector<cudaEvent_t> events_;
    std::size_t used_ = 0;
};

class CudaBackendImpl final : public CudaBackend {
  public:
    CudaBackendImpl(cudaStream_t stream, DeviceInfo info, const CudaOptions& options)
        : CudaBackend(make_thread_pool(options.threads)),
          stream_(stream),
          overlaps_(options.overlap && may_overlap_kernels()),
          info_(std::move(info)),
          options_(options),
          timer_(stream_, options.ordinal, follows_kernel_) {
        use_.graphs_enabled = options.graphs;
        (void)tickets_.reserve(*this, cuda::max_tickets * sizeof(std::uint32_t));
    }
    ~CudaBackendImpl() override {
        cudaStreamSynchronize(stream_);
        if (side_stream_ != nullptr) cudaStreamSynchronize(side_stream_);
        drop_workspace();
        moved_ = DeviceBuffer();
        tickets_ = DeviceBuffer();
        drop_graphs();
        library_.reset();
        for (cudaEvent_t event : {before_side_, after_side_})
            if (event != nullptr) cudaEventDestroy(event);
        if (side_stream_ != nullptr) cudaStreamDestroy(side_stream_);
        cudaStreamDestroy(stream_);
    }

    const DeviceInfo& info() const override { return info_; }
    cudaStream_t stream() const override {
        follows_kernel_ = false;
        return stream_;
    }

    void* allocate(std::size_t bytes) override {
        enter();
        const std::size_t size = std::max<std::size_t>(bytes, 1);
        void* const data = options_.arena ? arena_.allocate(size) : take(size);
        if (data != nullptr) check(cudaMemsetAsync(data, 0, size, stream_), "clearing memory");
        return data;
    }
    void release(void* data) override {
        enter();
        join_side_stream();  // the next owner's ops come after the current uses
        if (options_.arena)
            arena_.release(data);
        else
            free_memory(data);
    }

    void upload(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        enter();
        // Large uploads go in pieces: one is on its way while the next is copied to pinned memory.
        constexpr std::size_t max_piece = staging_bytes / 4;
        auto* target = static_cast<std::byte*>(to);
        const auto* source = static_cast<const std::byte*>(from);
        for (std::size_t done = 0; done < bytes; done += max_piece)
            upload_piece(target + done, source + done, std::min(bytes - done, max_piece));
    }
    void download(void* to, const void* from, std::size_t bytes) override {
        if (bytes == 0) return;
        enter();
        std::byte* staged = is_pinned(to) ? nullptr : down_.take(bytes);
        check(cudaMemcpyAsync(staged != nullptr ? staged : to, from, bytes, cudaMemcpyDeviceToHost, stream_),
              "download");
        if (staged != nullptr) arriving_.push_back({to, staged, bytes});
    }
    void copy(void* to, const void* from, std::size_t bytes) override {
        enter();
        if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
    }
    Status synchronize() override {
        enter();
        check(cudaStreamSynchronize(stream_), "waiting for the device");
        for (const Arrival& one : arriving_) std::memcpy(one.to, one.staged, one.bytes);
        arriving_.clear();
        up_.clear();
        down_.clear();
        return status();
    }

    DS_DEVICE_OPS(DS_RUN_OP, DS_RUN_OP_BATCH)

    void async_gather(const GatherOp& op, const UpdateIndexSetOp& set,
                      std::span<const std::int32_t> toggled) override {
        enter();
        if (!open_side_stream()) return Backend::async_gather(op, set, toggled);
        join_side_stream();  // readers of the previous ids must be done
        upload(const_cast<std::int32_t*>(set.toggled), toggled.data(), toggled.size_bytes());
        check(cudaEventRecord(before_side_, stream_), "gather on the side stream");
        check(cudaStreamWaitEvent(side_stream_, before_side_, 0), "gather on the side stream");
        cuda::launch(set, dtype(), side_stream_);
        cuda::launch(op, dtype(), side_stream_);
        check(cudaPeekAtLastError(), "gather on the side stream");
        check(cudaEventRecord(after_side_, side_stream_), "gather on the side stream");
        must_join_ = true;
    }
    void on_side_stream(std::function<void()> work) override {
        enter();
        if (!open_side_stream()) return work();
        check(cudaEventRecord(before_side_, stream_), "work on the side stream");
        check(cudaStreamWaitEvent(side_stream_, before_side_, 0), "work on the side stream");
        std::swap(stream_, side_stream_);
        on_side_stream_ = true;
        work();
        on_side_stream_ = false;
        std::swap(stream_, side_stream_);
        check(cudaEventRecord(after_side_, side_stream_), "work on the side stream");
        must_join_ = true;
    }
    void join_side_stream() override {
        enter();
        if (std::exchange(must_join_, false))
            check(cudaStreamWaitEvent(stream_, after_side_, 0), "joining the side stream");
    }

    void compact(std::span<const CompactOp> ops) override {
        enter();
        if (!moved_.reserve(*this, cuda::compact_scratch(ops) * sizeof(half_t)))
            return set_out_of_memory("KV compaction");
        cuda::launch_compact(ops, moved_.as<half_t>(), stream_);
        check(cudaPeekAtLastError(), "compact");
    }

    void graph(std::uint64_t key, FunctionRef<void()> work) override {
        enter();
        if (!options_.graphs) return work();
        if (graphs_.size() > max_graphs) drop_graphs();
        Graph& graph = graphs_[key];
        switch (graph.state) {
            case Graph::State::unseen:
                // The first pass is not captured: it loads kernels, which a capture cannot do.
                graph.state = Graph::State::seen;
                return work();
            case Graph::State::seen:
                if (!capture(graph, work)) {
                    graph.state = Graph::State::failed;
                    ++use_.graphs_failed;
                    return work();
                }
                graph.state = Graph::State::ready;
                ++use_.graphs;
                break;
            case Graph::State::ready:
                break;
            case Graph::State::failed:
                return work();
        }
        check(cudaGraphLaunch(graph.exec, stream_), "graph launch");
    }
    std::uint64_t new_graph_key() override { return ++keys_; }
    DeviceTimer* timer() override { return &timer_; }
    BackendStats stats() const override { return use_; }

    void set_dtype(Float16Kind dtype) override {
        enter();
        if (dtype != this->dtype()) drop_graphs();
        Backend::set_dtype(dtype);
    }
    Status use_cublaslt(int min_rows) override {
        enter();
        if (min_rows > 0 && !library_) {
            DS_ASSIGN(library_, cuda::LibraryProduct::open());
        }
        if (min_rows == library_rows_) return {};
        drop_graphs();  // they contain the previous products
        library_rows_ = min_rows;
        use_.library = min_rows > 0 ? library_->version() : std::string();
        return {};
    }

    bool fill_random(half_t* first_row, int rows, int k, const RandomValues& values) override {
        enter();
        cuda::launch_fill_random(first_row, rows, k, values, dtype(), stream_);
        check(cudaPeekAtLastError(), "random values");
        return true;
    }
    bool set_l2_persisting(const void* data, std::size_t bytes) override {
        if (!options_.cache_windows || info_.access_window_bytes == 0 || data == nullptr || bytes == 0)
            return false;
        enter();
        const std::size_t limit = std::min<std::size_t>(info_.persisting_l2_bytes, info_.access_window_bytes);
        if (cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::min(bytes, limit)) != cudaSuccess) {
            (void)cudaGetLastError();  // a refused hint changes no result
            return false;
        }
        cudaStreamAttrValue value{};
        value.accessPolicyWindow.base_ptr = const_cast<void*>(data);
        value.accessPolicyWindow.num_bytes = std::min<std::size_t>(bytes, info_.access_window_bytes);
        // Data larger than the reserved part would evict itself.
        value.accessPolicyWindow.hitRatio =
            std::min(1.0f, static_cast<float>(limit) / static_cast<float>(bytes));
        value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
        value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
        if (cudaStreamSetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &value) != cudaSuccess) {
            (void)cudaGetLastError();
            return false;
        }
        use_.l2_persisting_bytes = std::min(bytes, limit);
        return true;
    }

  private:
    struct Graph {
        enum class State { unseen, seen, ready, failed } state = State::unseen;
        cudaGraphExec_t exec = nullptr;
    };
    struct Arrival {
        void* to;
        const std::byte* staged;
        std::size_t bytes;
    };

    /// Uploads at most a quarter of the staging memory.
    void upload_piece(void* to, const void* from, std::size_t bytes) {
        std::byte* staged = up_.take(bytes);
        if (staged == nullptr) {
            check(cudaStreamSynchronize(stream_), "waiting for uploads");
            up_.clear();
            staged = up_.take(bytes);
        }
        if (staged != nullptr) std::memcpy(staged, from, bytes);
        check(cudaMemcpyAsync(to, staged != nullptr ? staged : from, bytes, cudaMemcpyHostToDevice, stream_),
              "upload");
        // Without pinned memory, the host's may change once the copy is done.
        if (staged == nullptr) check(cudaStreamSynchronize(stream_), "upload");
    }
    static void* take(std::size_t bytes) {
        void* data = nullptr;
        if (cudaMalloc(&data, bytes) == cudaSuccess) return data;
        (void)cudaGetLastError();  // the device stays usable after out of memory
        return nullptr;
    }
    static void free_memory(void* data) { cudaFree(data); }  // waits for the memory's uses

    /// Creates the side stream on first use; returns false if that fails.
    bool open_side_stream() {
        if (side_stream_ != nullptr) return true;
        const bool made = cudaStreamCreateWithFlags(&side_stream_, cudaStreamNonBlocking) == cudaSuccess &&
                          (before_side_ != nullptr ||
                           cudaEventCreateWithFlags(&before_side_, cudaEventDisableTiming) == cudaSuccess) &&
                          (after_side_ != nullptr ||
                           cudaEventCreateWithFlags(&after_side_, cudaEventDisableTiming) == cudaSuccess);
        if (made) return true;
        (void)cudaGetLastError();
        if (side_stream_ != nullptr) cudaStreamDestroy(std::exchange(side_stream_, nullptr));
        return false;
    }
    /// Begins a call that may enqueue something other than a kernel.
    void enter() const {
        use_gpu(options_.ordinal);
        follows_kernel_ = false;
    }
    cuda::LaunchStream kernel_stream() {
        if (on_side_stream_) return stream_;
        return {stream_, !overlaps_ ? nullptr : &follows_kernel_, tickets_.as<std::uint32_t>()};
    }
    void check(cudaError_t error, const char* what) {
        if (error == cudaSuccess) return;
        // Ops that a capture rejects are enqueued again without one.
        if (capturing_) {
            if (capture_error_.empty()) capture_error_ = fmt::format("{}: {}", what, error_text(error));
            return;
        }
        set_error(fmt::format("{}: {}{}", what, error_text(error), lost_hint));
    }
    /// `op` is an op, or a span of them.
    template <typename Op>
    void run(const Op& op, const char* name) {
        use_gpu(options_.ordinal);
        cuda::launch(op, dtype(), kernel_stream());
        check(cudaPeekAtLastError(), name);
    }
    void run(const MatmulOp& op, const char* name) {
        // The library's workspace belongs to the stream.
        const bool by_library =
            library_rows_ > 0 && op.rows >= library_rows_ && op.chosen == nullptr && !on_side_stream_;
        if (!by_library) return run<MatmulOp>(op, name);
        enter();
        if (!library_->run(op, dtype(), stream_)) return run<MatmulOp>(op, name);
        ++use_.library_products;
        check(cudaPeekAtLastError(), "cuBLASLt product");
    }
    static bool is_pinned(const void* data) {
        cudaPointerAttributes attributes{};
        if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
            (void)cudaGetLastError();
            return false;
        }
        return attributes.type == cudaMemoryTypeHost;
    }

    /// Returns false, with the stream unchanged, if these ops cannot be captured.
    bool capture(Graph& graph, FunctionRef<void()> work) {
        cudaGraph_t captured = nullptr;
        capturing_ = true;
        capture_error_.clear();
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "starting a graph capture");
        if (capture_error_.empty()) {
            work();
            check(cudaStreamEndCapture(stream_, &captured), "ending a graph capture");
        }
        if (capture_error_.empty()) check(cudaGraphInstantiate(&graph.exec, captured, 0), "graph");
        capturing_ = follows_kernel_ = false;  // the graph is not launched yet
        if (captured != nullptr) cudaGraphDestroy(captured);
        if (capture_error_.empty()) return true;
        graph.exec = nullptr;
        (void)cudaGetLastError();
        if (use_.graph_error.empty()) use_.graph_error = capture_error_;
        return false;
    }
    void drop_graphs() {
        check(cudaStreamSynchronize(stream_), "waiting for graphs");  // none may be running
        for (auto& [key, graph] : graphs_)
            if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
        graphs_.clear();
    }

    cudaStream_t stream_;
    cudaStream_t side_stream_ = nullptr;
    cudaEvent_t before_side_ = nullptr, after_side_ = nullptr;
    bool must_join_ = false;       ///< work on the side stream has not been joined
    bool on_side_stream_ = false;  ///< ops are enqueued to the side stream
    const bool overlaps_;
    mutable bool follows_kernel_ = false;  ///< the stream's latest item is a kernel
    DeviceInfo info_;
    CudaOptions options_;
    BackendStats use_;
    bool capturing_ = false;
    std::string capture_error_;
    CudaTimer timer_;
    Staging up_, down_;
    std::vector<Arrival> arriving_;
    Arena arena_{take, free_memory};  ///< destroyed after all buffers below
    DeviceBuffer moved_;
    DeviceBuffer tickets_;  ///< of the main stream's kernels; empty = there was no memory
    std::unique_ptr<cuda::LibraryProduct> library_;
    int library_rows_ = 0;
    std::map<std::uint64_t, Graph> graphs_;
    std::uint64_t keys_ = 0;
};

DeviceInfo describe(const cudaDeviceProp& found) {
    DeviceInfo info;
    info.name = found.name;
    info.architecture = fmt::format("sm_{}{}", found.major, found.minor);
    info.processors = found.multiProcessorCount;
    info.memory_bytes = found.totalGlobalMem;
    info.l2_bytes = static_cast<std::uint64_t>(found.l2CacheSize);
    info.persisting_l2_bytes = static_cast<std::uint64_t>(found.persistingL2CacheMaxSize);
    info.access_window_bytes = static_cast<std::uint64_t>(found.accessPolicyMaxWindowSize);
    info.shared_bytes = static_cast<int>(found.sharedMemPerBlockOptin);
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess) info.driver = version_text(version);
    if (cudaRuntimeGetVersion(&version) == cudaSuccess) info.runtime = version_text(version);
    return info;
}

constexpr int min_major = 8;

/// Says why the driver cannot run this build's CUDA.
std::string explain_driver() {
    int driver = 0, needed = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "no NVIDIA driver on this machine; install one for GPU runs";
    (void)cudaRuntimeGetVersion(&needed);
    return fmt::format("the NVIDIA driver is for CUDA {}, this build needs {}; update the driver",
                       version_text(driver), version_text(needed));
}

DeviceProbe probe(int ordinal) {
    DeviceProbe result;
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        result.why_not = explain_driver();
    } else if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        result.why_not =
            "the driver shows no GPU; pass one into this container, check CUDA_VISIBLE_DEVICES, or create an "
            "instance if it is in MIG mode (nvidia-smi mig -cgi 0 -C)";
    } else if (error != cudaSuccess) {
        result.why_not = "the driver reported an error: " + error_text(error);
    } else if (ordinal >= count) {
        result.why_not = fmt::format("GPU number {} does not exist; this machine has {} (numbered from 0)",
                                     ordinal, count);
    }
    if (!result.why_not.empty()) {
        (void)cudaGetLastError();
        return result;
    }
    cudaDeviceProp found{};
    if (const cudaError_t query_error = cudaGetDeviceProperties(&found, ordinal);
        query_error != cudaSuccess) {
        result.why_not = "reading the GPU's properties failed: " + error_text(query_error);
        return result;
    }
    result.info = describe(found);
    if (found.major < min_major) {
        result.why_not = fmt::format("{} is {}; use a GPU of sm_80 or later, or --backend cpu", found.name,
                                     result.info.architecture);
        return result;
    }
    result.available = true;
    return result;
}

}  // namespace

DeviceProbe probe_cuda() {
    return probe(0);
}

/// CUDA cannot reuse a device in a process whose kernel has failed.
constexpr std::string_view restart_hint = " (if a kernel has failed, restart the program)";

Result<std::unique_ptr<CudaBackend>> open_cuda_device(const CudaOptions& options) {
    // Clears an earlier error of the device, which this stream's first launch would report.
    (void)cudaGetLastError();
    DeviceProbe found = probe(options.ordinal);
    if (!found.available) return bad_input("CUDA is not available: {}", found.why_not);
    if (const cudaError_t error = cudaSetDevice(options.ordinal); error != cudaSuccess)
        return failed("GPU {} cannot be used: {}{}", options.ordinal, error_text(error), restart_hint);
    cudaStream_t stream = nullptr;
    if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        error != cudaSuccess)
        return failed("GPU {}: creating a stream failed: {}{}", options.ordinal, error_text(error),
                      restart_hint);
    return std::unique_ptr<CudaBackend>(
        std::make_unique<CudaBackendImpl>(stream, std::move(found.info), options));
}

Result<std::unique_ptr<Backend>> open_cuda(const CudaOptions& options) {
    DS_ASSIGN(auto device, open_cuda_device(options));
    return std::unique_ptr<Backend>(std::move(device));
}

}  // namespace draftscope::kernels
