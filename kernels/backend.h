#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/device_timer.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "base/units.h"
#include "kernels/ops.h"
#include "kernels/ops/random_values.h"
#include "kernels/thread_pool.h"

/// A machine with its own memory for weights and activations. Ops name their operands by addresses in that
/// memory. They run in the order in which they are enqueued; only synchronize() waits. kernels/cuda
/// implements this interface; in tests, the same engine code runs on an implementation that computes on the
/// host.
namespace draftscope::kernels {

/// Properties of a device.
struct DeviceInfo {
    std::string name;          ///< "NVIDIA H200"
    std::string architecture;  ///< "sm_90"
    int processors = 0;        ///< multiprocessors
    std::uint64_t memory_bytes = 0;
    std::uint64_t l2_bytes = 0;
    std::uint64_t persisting_l2_bytes = 0;  ///< the most that may be set aside
    std::uint64_t access_window_bytes = 0;  ///< largest access-policy window
    int shared_bytes = 0;                   ///< the most shared memory that one block may use
    std::string driver, runtime;            ///< versions, "13.0"
};

/// What the ops of a backend support and need. Those of a device are the defaults.
struct BackendLimits {
    bool unlimited = false;  ///< ops take operands of all sizes
    /// Memory for the weights of one op of rejection sampling: several times the nodes that occupy all
    /// processors. 0 = sampling needs none.
    std::size_t rejection_bytes = std::size_t{256} << 20;
    bool partial_attention = true;  ///< AttentionOp::partial is used
    /// Values that ops pass to each other stay in a cache; phases do not count their bytes.
    bool caches_values = false;
    /// Rows of a pass over a prompt. Few rows would leave tensor cores idle; our default, not measured.
    int prefill_rows = 512;
    bool can_topk(int support, int k) const { return unlimited || kernels::can_topk(support, k); }
    bool can_sample(int columns) const { return unlimited || columns <= max_sample_columns; }
    /// `width`: candidates of a row, or nodes of a tree's level.
    bool can_grow(int width) const { return unlimited || width <= max_topk; }
    bool can_rerank(int candidates, int nodes) const {
        return unlimited || kernels::can_rerank(candidates, nodes);
    }
    bool can_route(int columns, int k) const { return unlimited || kernels::can_route(columns, k); }
    /// `clusters`: without the one that every row includes.
    bool can_choose_clusters(int clusters) const { return unlimited || clusters < max_clusters; }
};

/// Counters of a device's use, as `doctor` and `run` report them.
struct BackendStats {
    bool graphs_enabled = false;
    int graphs = 0;                         ///< graphs kept
    int graphs_failed = 0;                  ///< passes that could not be captured and run op by op
    std::string graph_error;                ///< the error of the first such pass
    std::uint64_t l2_persisting_bytes = 0;  ///< bytes that set_l2_persisting() holds in the cache
    std::string library;                    ///< name and version while use_cublaslt() is on
    std::int64_t library_products = 0;      ///< products enqueued to the library; those of a graph count once
};

struct DeviceWorkspace;

/// Where device memory comes from.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    /// Returns zeroed memory, aligned to 256 bytes, or null if there is too little.
    virtual void* allocate(std::size_t bytes) = 0;
    /// Frees memory from allocate().
    virtual void release(void* data) = 0;
    /// The memory that buffers come from. It outlives them.
    virtual DeviceMemory& memory() { return *this; }
    /// Size of the latest buffer for which there was too little memory; 0 = none so far.
    std::size_t refused_bytes() const { return refused_bytes_; }
    void set_refused_bytes(std::size_t bytes) { refused_bytes_ = bytes; }

  private:
    std::atomic<std::size_t> refused_bytes_ = 0;
};
/// The memory of the CPU backend. It outlives every backend.
DeviceMemory& host_memory();

// Members of Device for each op.
#define DS_OP(name, Op)                     \
    virtual void enqueue(const Op& op) = 0; \
    void name(const Op& op) {               \
        enqueue(op);                        \
    }
#define DS_OP_BATCH(name, Op)                          \
    virtual void enqueue(std::span<const Op> ops) = 0; \
    void name(std::span<const Op> ops) {               \
        enqueue(ops);                                  \
    }                                                  \
    void name(const Op& op) {                          \
        enqueue(std::span(&op, 1));                    \
    }

/// Memory, ops, and the threads that run ops (CPU) or the stream that they are enqueued to (GPU).
class Backend : public DeviceMemory {
  public:
    explicit Backend(std::unique_ptr<ThreadPool> pool, const BackendLimits& limits = {});
    ~Backend() override;
    virtual const DeviceInfo& info() const = 0;
    /// Returns whether this is the CPU. Its memory is the host's, ops run at once, and graphs are not kept.
    virtual bool is_host() const { return false; }
    std::size_t activation_bytes() const { return is_host() ? sizeof(float) : sizeof(half_t); }
    /// Returns memory of activation_bytes() each as activations.
    Activations as_activations(void* data) const {
        return is_host() ? Activations(static_cast<float*>(data)) : Activations(static_cast<half_t*>(data));
    }
    /// Returns the address `count` activations after `first`.
    Activations at(Activations first, std::ptrdiff_t count) const {
        return is_host() ? Activations(first.floats + count) : Activations(first.halves + count);
    }
    /// Threads of the host; those of the CPU's ops. Only calls that replace them may keep the address.
    ThreadPool& pool() const { return *pool_; }
    void set_pool(std::unique_ptr<ThreadPool> pool) { pool_ = std::move(pool); }
    /// Hold it while enqueuing ops that belong together (the engine's thread or a side stream's). A thread
    /// may hold it several times.
    std::recursive_mutex& submit_mutex() { return submit_mutex_; }
    /// Staging memory for ops with operands on the host.
    DeviceWorkspace& workspace() { return *workspace_; }
    /// Returns whether synchronize() will return an error. Ops then do nothing: their operands may not have
    /// arrived.
    bool has_error() const { return !error_.empty(); }
    /// Sets the error that synchronize() returns. The first error wins.
    void set_error(std::string what) {
        if (error_.empty()) error_ = std::move(what);
    }
    /// Returns an error that names what did not fit and the size of the refused buffer. `advice` says what to
    /// do; "" = nothing.
    Error out_of_memory(std::string_view what, std::string_view advice = "");
    /// Records that memory for `what` ran out. Only the caller that requested the memory is affected; see
    /// clear_out_of_memory().
    void set_out_of_memory(std::string_view what) {
        if (out_of_memory_.empty()) out_of_memory_ = out_of_memory(what).message;
    }
    /// Clears a pending out-of-memory error after its caller has handled it.
    void clear_out_of_memory() {
        out_of_memory_.clear();
        ++oom_epoch_;
    }
    /// Counts cleared errors. Cached "no memory" results from an earlier epoch may be retried.
    int oom_epoch() const { return oom_epoch_; }

    /// The 16-bit format of weights, activations, keys and values. Set it before allocating any of them.
    Float16Kind dtype() const { return dtype_; }
    virtual void set_dtype(Float16Kind dtype) { dtype_ = dtype; }

    /// The host memory may change as soon as upload() returns. The result of download() is valid after
    /// synchronize().
    virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
    virtual void download(void* to, const void* from, std::size_t bytes) = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    /// Waits for all enqueued ops. An error names the op that failed first; the device is unusable
    /// afterwards.
    virtual Status synchronize() = 0;
    /// Runs `enqueue` with submit_mutex() held and waits, also after its error: downloads enqueued before it
    /// still write to host memory. Returns the first error.
    Status submit(FunctionRef<Status()> enqueue);

    // For each op of the list in kernels/ops.h, `enqueue(op)` and `name(op)`, which is the same.
    DS_DEVICE_OPS(DS_OP, DS_OP_BATCH)

    /// Writes rows of `width` values as activations, [rows, stride], normalised if `x` has a weight. Further
    /// columns become zero.
    void to_activations(const NormSpec& x, int rows, int width, Activations y, int stride);
    /// Runs a product and the ops around it; see FusedMatmulOp.
    virtual void fused_matmul(const FusedMatmulOp& op);
    /// Returns whether matmul_topk() of `n` outputs is faster than a product and topk(). If the logits are
    /// not needed, they are not stored then.
    virtual bool prefers_matmul_topk(int /*n*/, int /*k*/) const { return false; }
    /// Returns whether a product and topk() replace matmul_topk() of `n` outputs, which is then not available
    /// or slower. The caller records them as two phases.
    virtual bool splits_matmul_topk(int /*n*/, int /*k*/) const { return false; }
    /// Verifies trees by rejection sampling. Lists their drafts, samples every node and follows the accepted
    /// drafts. op.weights has [max_nodes, vocab] values, unless BackendLimits::rejection_bytes is
    /// 0: the CPU samples the nodes of paths only.
    virtual void sample_and_follow(const RejectionSampleOp& op, int max_nodes,
                                   std::span<const ListChildrenOp> lists,
                                   std::span<const FollowAcceptedOp> paths);
    /// Verifies trees by typical acceptance, with the entropies of `entropy`. The CPU computes only those
    /// that it needs, and does not store them.
    virtual void accept_typical_trees(const EntropyOp& entropy, std::span<const AcceptTypicalOp> trees);
    /// Uploads `toggled` to set.toggled, updates the set and gathers its members; op.rows is the set's list.
    /// If the device has a side stream, these ops run on it: after everything enqueued so far, and
    /// concurrently with later ops until join_side_stream(). Their inputs must not change until then.
    virtual void async_gather(const GatherOp& op, const UpdateIndexSetOp& set,
                              std::span<const std::int32_t> toggled);
    /// Enqueues other ops on the side stream under the same terms. `work` only enqueues ops, on memory that
    /// is already allocated and outlives the call.
    virtual void on_side_stream(std::function<void()> work) { work(); }
    /// Makes later ops wait for the side stream.
    virtual void join_side_stream() {}
    /// Compacts KV caches of equal `planes` and `width`. It is not in the list of ops because it allocates.
    virtual void compact(std::span<const CompactOp> ops) = 0;

    /// Runs `work`, which only enqueues ops. The same key promises the same ops on the same addresses, so
    /// that a device may keep them as a graph and launch it as one unit. Keys come from new_graph_key().
    virtual void graph(std::uint64_t key, FunctionRef<void()> work) = 0;
    /// Returns an unused key for graph().
    virtual std::uint64_t new_graph_key() = 0;
    /// Returns whether graph() keeps graphs.
    virtual bool keeps_graphs() const { return true; }
    /// Returns a count that an op leaves in memory, if the backend has computed it; else its upper bound.
    /// Later ops then process missing items.
    virtual int known_count(const std::int32_t* /*count*/, int bound) const { return bound; }
    const BackendLimits& limits() const { return limits_; }
    /// Returns the values at AttentionOp::partial for a row of `blocks` blocks.
    std::size_t attention_partials(const AttentionHeads& shape, int blocks) const {
        return limits_.partial_attention
                   ? static_cast<std::size_t>(shape.heads) * blocks * (shape.head_dim + 2)
                   : 0;
    }
    /// Fills rows of a matrix with generated values, and their padding with zeros. Returns false if the
    /// device cannot: the host generates and uploads them then.
    virtual bool fill_random(half_t* /*first_row*/, int /*rows*/, int /*k*/, const RandomValues& /*values*/) {
        return false;
    }
    /// Requests L2 persistence for `data`. Returns false if the device does not support it.
    virtual bool set_l2_persisting(const void* /*data*/, std::size_t /*bytes*/) { return false; }
    /// Uses a library (--numerics fast) for products of at least `min_rows` rows; 0 = off. The library's
    /// sums depend on the shape of the call. Discards the graphs of graph(). On an error, nothing changes.
    virtual Status use_cublaslt(int min_rows);
    /// Returns counters of graphs, L2 persistence and library products.
    virtual BackendStats stats() const { return {}; }
    /// Measures device time; null if the device cannot.
    virtual DeviceTimer* timer() = 0;

    /// Returns the first error that is known without a wait, or a pending out-of-memory error.
    Status status() const;

  protected:
    /// Destructors of implementations call this to free the workspace's memory.
    void drop_workspace();

  private:
    std::unique_ptr<ThreadPool> pool_;
    const BackendLimits limits_;
    std::recursive_mutex submit_mutex_;
    Float16Kind dtype_ = Float16Kind::bf16;
    std::string error_, out_of_memory_;
    int oom_epoch_ = 0;
    std::unique_ptr<DeviceWorkspace> workspace_;
};
#undef DS_OP
#undef DS_OP_BATCH

/// Device memory that only grows. Growing discards the contents. The address is null while empty.
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
    ~DeviceBuffer();

    /// Returns false if there is too little memory; the buffer is empty then.
    bool reserve(DeviceMemory& memory, std::size_t bytes);
    std::size_t bytes() const { return bytes_; }
    template <typename T>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    DeviceMemory* memory_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Memory for activations of a backend.
class ActivationBuffer : public DeviceBuffer {
  public:
    /// Makes room for `count` activations. Returns false if out of memory.
    bool reserve(Backend& backend, std::size_t count) {
        is_float_ = backend.is_host();
        return DeviceBuffer::reserve(backend, count * (is_float_ ? sizeof(float) : sizeof(half_t)));
    }
    operator Activations() const { return is_float_ ? Activations(as<float>()) : Activations(as<half_t>()); }

  private:
    bool is_float_ = false;
};

/// Creates the CPU, whose ops run on the threads of `pool`.
std::unique_ptr<Backend> make_cpu_backend(std::unique_ptr<ThreadPool> pool);
inline std::unique_ptr<Backend> make_cpu_backend(int threads, Isa isa = best_isa(), bool pin = false) {
    return make_cpu_backend(make_thread_pool(threads, isa, pin));
}

/// The CUDA device that was found. Probing works without a GPU or its driver.
struct DeviceProbe {
    bool available = false;
    std::string why_not;  ///< for the user: the cause and what to do
    DeviceInfo info;
};
DeviceProbe probe_cuda();
struct CudaOptions {
    int ordinal = 0;
    int threads = 1;  ///< of the host
    bool graphs = true;
    bool cache_windows = false;  ///< set_l2_persisting() sets L2 access-policy windows
    /// Allocates buffers from large blocks. If false, each buffer is a driver allocation, so that the
    /// driver's tools detect accesses past its end.
    bool arena = true;
    /// Lets kernels start before the previous one ends. Traced times of such kernels overlap.
    bool overlap = true;
};
/// Opens a GPU. An error says why it cannot be used.
Result<std::unique_ptr<Backend>> open_cuda(const CudaOptions& options = {});

}  // namespace draftscope::kernels
