#include "tests/support/simt_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "kernels/cuda/launch.h"

namespace draftscope::testing {
namespace {

using namespace kernels;

class SimtDevice final : public Device {
  public:
    explicit SimtDevice(unsigned order) : order_(order) {
        info_.name = "kernels on the host";
        info_.architecture = "simt";
        info_.processors = 1;
        info_.memory_bytes = std::uint64_t{4} << 30;
    }
    ~SimtDevice() override { drop_workspace(); }
    const DeviceInfo& info() const override { return info_; }

    /// The last 16-byte chunk ends at a protected page.
    void* allocate(std::size_t bytes) override {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 15) / 16 * 16;
        const std::size_t mapped = (rounded + page - 1) / page * page;
        auto* start = static_cast<char*>(
            mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (start == MAP_FAILED) return nullptr;
        mprotect(start + mapped, page, PROT_NONE);
        char* data = start + mapped - rounded;
        maps_[data] = {start, mapped + page};
        return data;
    }
    void release(void* data) override {
        const auto found = maps_.find(static_cast<char*>(data));
        munmap(found->second.first, found->second.second);
        maps_.erase(found);
    }
    void upload(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void download(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    Status synchronize() override { return failure(); }

    void matmul(const MatmulOp& op) override { run(cuda::launch_matmul, op); }
    void rms_norm(const RmsNormOp& op) override { run(cuda::launch_rms_norm, op); }
    void cast(const CastOp& op) override { run(cuda::launch_cast, op); }
    void add(const AddOp& op) override { run(cuda::launch_add, op); }
    void silu_mul(const SiluMulOp& op) override { run(cuda::launch_silu_mul, op); }
    void rope_store(const RopeStoreOp& op) override { run(cuda::launch_rope_store, op); }
    void attention(const AttentionOp& op) override { run(cuda::launch_attention, op); }
    void topk(const TopKOp& op) override { run(cuda::launch_topk, op); }
    void mask_top_k_top_p(const TopKTopPMaskOp& op) override { run(cuda::launch_mask_top_k_top_p, op); }
    void sample(const SampleOp& op) override { run(cuda::launch_sample, op); }
    void rank(const RankOp& op) override { run(cuda::launch_rank, op); }
    void sum_set_probability(const SetProbabilityOp& op) override {
        run(cuda::launch_sum_set_probability, op);
    }
    void entropy(const EntropyOp& op) override { run(cuda::launch_entropy, op); }
    void rejection_sample(const RejectionSampleOp& op) override { run(cuda::launch_rejection_sample, op); }
    void matmul_topk(const MatmulTopKOp& op) override { run(cuda::launch_matmul_topk, op); }
    void sample_without_replacement(const SampleWithoutReplacementOp& op) override {
        run(cuda::launch_sample_without_replacement, op);
    }
    void redistribute(const RedistributeOp& op) override { run(cuda::launch_redistribute, op); }
    void list_reachable_tokens(const ReachableTokensOp& op) override {
        run(cuda::launch_list_reachable_tokens, op);
    }
    void gather_columns(const GatherColumnsOp& op) override { run(cuda::launch_gather_columns, op); }
    void list_children(std::span<const ListChildrenOp> ops) override {
        run_all(cuda::launch_list_children, ops);
    }
    void follow_accepted(std::span<const FollowAcceptedOp> ops) override {
        run_all(cuda::launch_follow_accepted, ops);
    }
    void beam(std::span<const BeamOp> ops) override { run_all(cuda::launch_beam, ops); }
    void rerank(std::span<const RerankOp> ops) override { run_all(cuda::launch_rerank, ops); }
    void follow_argmax(std::span<const FollowArgmaxOp> ops) override {
        run_all(cuda::launch_follow_argmax, ops);
    }
    void accept_typical(std::span<const AcceptTypicalOp> ops) override {
        run_all(cuda::launch_accept_typical, ops);
    }
    void topk_set(const TopKSetOp& op) override { run(cuda::launch_topk_set, op); }
    void matmul_topk_set(const MatmulTopKSetOp& op) override { run(cuda::launch_matmul_topk_set, op); }
    void bucket_top_m(const BucketTopMOp& op) override { run(cuda::launch_bucket_top_m, op); }
    void list_unique_tokens(const UniqueTokensOp& op) override { run(cuda::launch_list_unique_tokens, op); }
    void update_index_set(const UpdateIndexSetOp& op) override { run(cuda::launch_update_index_set, op); }
    void clusters(const ClustersOp& op) override { run(cuda::launch_clusters, op); }
    void cluster_tokens(const ClusterTokensOp& op) override { run(cuda::launch_cluster_tokens, op); }
    void remap_ids(const RemapIdsOp& op) override { run(cuda::launch_remap_ids, op); }
    void gather(const GatherOp& op) override { run(cuda::launch_gather, op); }
    void copy_rows(std::span<const CopyRowsOp> ops) override { run_all(cuda::launch_copy_rows, ops); }
    void compact(const CompactOp& op) override {
        CompactOp there = op;
        there.d_path = op.path;
        compact({&there, 1});
    }
    void compact(std::span<const CompactOp> ops) override {
        cuda::simt::set_order(order_);
        std::vector<half_t> scratch(cuda::compact_scratch(ops));
        cuda::launch_compact(ops, scratch.data(), nullptr);
    }
    void graph(std::uint64_t, FunctionRef<void()> work) override { work(); }
    std::uint64_t new_graph_key() override { return ++keys_; }
    DeviceTimer* timer() override { return nullptr; }

  private:
    template <typename Op>
    void run(void (*launch)(const Op&, cuda::cudaStream_t), const Op& op) {
        cuda::simt::set_order(order_);
        launch(op, nullptr);
    }

    template <typename Op>
    void run(void (*launch)(const Op&, Float16Kind, cuda::cudaStream_t), const Op& op) {
        cuda::simt::set_order(order_);
        launch(op, dtype(), nullptr);
    }
    template <typename Op>
    void run_all(void (*launch)(std::span<const Op>, cuda::cudaStream_t), std::span<const Op> ops) {
        cuda::simt::set_order(order_);
        launch(ops, nullptr);
    }

    unsigned order_;
    DeviceInfo info_;
    std::map<char*, std::pair<char*, std::size_t>> maps_;
    std::uint64_t keys_ = 0;
};

}  // namespace

std::unique_ptr<kernels::Device> make_simt_device(unsigned order) {
    return std::make_unique<SimtDevice>(order);
}

}  // namespace draftscope::testing
