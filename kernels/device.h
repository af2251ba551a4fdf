#pragma once

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
#include "kernels/device_ops.h"
#include "kernels/exec.h"

/// A machine that keeps weights and activations in a memory of its own. Ops name their operands by addresses
/// in that memory and run in the order in which they are asked for; only finish() waits.
/// kernels/cuda implements it; tests run the same engine code on a twin that computes on the host.
namespace draftscope::kernels {

struct DeviceInfo {
    std::string name;          ///< "NVIDIA H200"
    std::string architecture;  ///< "sm_90"
    int processors = 0;        ///< multiprocessors
    std::uint64_t memory_bytes = 0;
    std::uint64_t l2_bytes = 0;
    std::uint64_t persisting_l2_bytes = 0;  ///< most that may be set aside
    std::uint64_t access_window_bytes = 0;  ///< largest access-policy window
    int shared_bytes = 0;                   ///< most shared memory one block may ask for
    std::string driver, runtime;            ///< versions, "13.0"
};

/// How a device was used: what doctor and run say about it.
struct DeviceUse {
    bool graphs_on = false;
    int graphs = 0;                     ///< kept
    int refused = 0;                    ///< passes that could not be captured and run op by op
    std::string why_refused;            ///< of the first one
    std::uint64_t cache_bytes = 0;      ///< held in the cache by keep_in_cache()
    std::string library;                ///< name and version, while use_library() has it on
    std::int64_t library_products = 0;  ///< asked of it; a graph's count once
};

struct DeviceWorkspace;

class Device {
  public:
    Device();
    virtual ~Device();
    virtual const DeviceInfo& info() const = 0;
    /// Held by whoever asks for ops that belong together: the engine's thread, or a side lane's.
    std::mutex& busy() { return busy_; }
    /// What ops with operands on the host pass through.
    DeviceWorkspace& workspace() { return *workspace_; }
    /// Kept for finish(), unless an error came before.
    void fail(std::string what) {
        if (failure_.empty()) failure_ = std::move(what);
    }
    /// The same where memory was out, which harms nothing but who asked: until forgive().
    void refuse(std::string what) {
        if (refusal_.empty()) refusal_ = std::move(what);
    }
    /// Whoever was refused has heard of it, or is gone.
    void forgive() {
        refusal_.clear();
        ++forgiven_;
    }
    /// How often it was; what was not there for want of memory may be asked for again then.
    int forgiven() const { return forgiven_; }

    /// What its 16-bit values are: weights, activations, keys and values alike. To be chosen before anything
    /// lies there.
    Halves halves() const { return halves_; }
    virtual void set_halves(Halves halves) { halves_ = halves; }

    /// Zeroed memory, 256-byte aligned; null when there is none left.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void release(void* data) = 0;
    /// The host memory may change as soon as upload() returns, and holds what download() brings after
    /// finish().
    virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
    virtual void download(void* to, const void* from, std::size_t bytes) = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    /// Waits for everything asked for. An error names the op that failed first; the device is then of no use.
    virtual Status finish() = 0;

    virtual void matmul(const MatmulOp& op) = 0;
    virtual void rms_norm(const RmsNormOp& op) = 0;
    virtual void round(const RoundOp& op) = 0;
    virtual void add(const AddOp& op) = 0;
    virtual void silu_mul(const SiluMulOp& op) = 0;
    virtual void rope_store(const RopeStoreOp& op) = 0;
    virtual void attention(const AttentionOp& op) = 0;
    virtual void select(const SelectOp& op) = 0;
    virtual void cut(const CutOp& op) = 0;
    virtual void draw(const DrawOp& op) = 0;
    virtual void rank(const RankOp& op) = 0;
    virtual void mass(const MassOp& op) = 0;
    virtual void entropy(const EntropyOp& op) = 0;
    virtual void residual(const ResidualOp& op) = 0;
    virtual void head(const HeadOp& op) = 0;
    virtual void draft(const DraftOp& op) = 0;
    virtual void own_columns(const OwnColumnsOp& op) = 0;
    virtual void spread(const SpreadOp& op) = 0;
    virtual void reach(const ReachOp& op) = 0;
    // Of several sequences in one call; none of the ops reads what another one writes.
    virtual void beam(std::span<const BeamOp> ops) = 0;
    virtual void rerank(std::span<const RerankOp> ops) = 0;
    virtual void accept(std::span<const AcceptOp> ops) = 0;
    virtual void accept_typical(std::span<const AcceptTypicalOp> ops) = 0;
    virtual void list_drafts(std::span<const DraftListOp> ops) = 0;
    virtual void accept_drafts(std::span<const AcceptDraftsOp> ops) = 0;
    /// With paths that lie there, of equal `planes` and `width`.
    virtual void compact(std::span<const CompactOp> ops) = 0;
    virtual void copy_rows(std::span<const CopyRowsOp> ops) = 0;
    void copy_rows(const CopyRowsOp& op) { copy_rows(std::span(&op, 1)); }
    virtual void top_set(const TopSetOp& op) = 0;
    virtual void router(const RouterOp& op) = 0;
    virtual void striped(const StripedOp& op) = 0;
    virtual void unite(const UnionOp& op) = 0;
    virtual void translate(const TranslateOp& op) = 0;
    virtual void gather(const GatherOp& op) = 0;
    virtual void list_set(const RowSetOp& op) = 0;
    virtual void clusters(const ClustersOp& op) = 0;
    virtual void cluster_tokens(const ClusterTokensOp& op) = 0;
    /// A gather of the rows in `set`, whose list is op.rows, after numbers of the host entered and left it
    /// through the array set.toggled; on a queue beside this one where there is one: behind what was asked
    /// for so far, and beside what follows until join_aside(). What it reads must stay as it is until then.
    virtual void gather_aside(const GatherOp& op, const RowSetOp& set, std::span<const std::int32_t> toggled);
    /// Any ops on that queue, under the same terms: `work` asks for ops alone, in memory that is there, and
    /// outlives the call.
    virtual void aside(std::function<void()> work) { work(); }
    /// What is asked for from here on finds done what went aside.
    virtual void join_aside() {}
    /// With a path of the host.
    virtual void compact(const CompactOp& op) = 0;

    /// Runs `work`, which only asks for ops. The same key promises the same ops on the same addresses, so
    /// that they may be kept as a graph and launched as one. Keys come from new_key().
    virtual void replay(std::uint64_t key, FunctionRef<void()> work) = 0;
    /// A fresh number for keys of replay().
    virtual std::uint64_t new_key() = 0;
    /// Another queue on the same machine, which runs beside this one's and owns what is allocated through it;
    /// null where there is none. Ends before this device does.
    virtual std::unique_ptr<Device> beside() { return nullptr; }
    /// Wishes that `data` stays in the cache between ops; false where nothing can be said about that.
    virtual bool keep_in_cache(const void* /*data*/, std::size_t /*bytes*/) { return false; }
    /// Products of at least `from_rows` rows become a library's, whose sums depend on the shape of the call
    /// (--numerics fast); 0 = none. What was kept for replay() is forgotten. An error changes nothing.
    virtual Status use_library(int from_rows);
    /// What became of replays and wishes so far.
    virtual DeviceUse use() const { return {}; }
    /// Device time of what was asked for; null when it cannot be measured.
    virtual DeviceTimer* timer() = 0;

  protected:
    /// To be called by destructors of implementations, whose memory the workspace holds.
    void drop_workspace();
    Status failure() const;

  private:
    std::mutex busy_;
    Halves halves_ = Halves::bf16;
    std::string failure_, refusal_;
    int forgiven_ = 0;
    std::unique_ptr<DeviceWorkspace> workspace_;
};

/// Memory of a device that only grows; what it held is lost when it does. Address null while empty.
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(Device& device) : device_(&device) {}
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
    ~DeviceBuffer();

    /// False when the device has not enough memory; the buffer is then empty.
    bool reserve(Device& device, std::size_t bytes);
    std::size_t bytes() const { return bytes_; }
    template <typename T>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    Device* device_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// A pool of CPU threads in front of `device`, which it owns: matrices are kept there in bf16.
std::unique_ptr<Exec> make_device_exec(int threads, std::unique_ptr<Device> device);

/// What there is to run on, found without starting anything that a machine without a GPU lacks.
struct DeviceProbe {
    bool available = false;
    std::string why_not;  ///< for a person, with what to do
    DeviceInfo info;
};
DeviceProbe probe_cuda();
struct CudaOptions {
    int ordinal = 0;
    bool graphs = true;
    bool cache_windows = false;  ///< keep_in_cache() sets L2 access-policy windows
    /// Buffers come from large pieces that are taken once. Without, each is the driver's, whose tools then
    /// see where it ends.
    bool arena = true;
};
Result<std::unique_ptr<Device>> open_cuda(const CudaOptions& options = {});

}  // namespace draftscope::kernels
