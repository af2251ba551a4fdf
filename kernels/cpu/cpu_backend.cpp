#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "base/numel.h"
#include "kernels/backend.h"
#include "kernels/cpu/accept_ops.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul/fused.h"
#include "kernels/cpu/matmul_topk.h"
#include "kernels/cpu/probabilities.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/set_ops.h"
#include "kernels/cpu/threads/split.h"
#include "kernels/cpu/tree_ops.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/row_major_matrix.h"
#include "kernels/run_ops.h"

namespace draftscope::kernels {
namespace {

float activate(Activation activation, float value) {
    switch (activation) {
        case Activation::none:
            break;
        case Activation::silu:
            return value / (1.0f + std::exp(-value));
        case Activation::relu:
            return std::max(value, 0.0f);
    }
    return value;
}

class CpuBackend final : public Backend {
  public:
    explicit CpuBackend(std::unique_ptr<ThreadPool> threads)
        : Backend(std::move(threads), {.unlimited = true,
                                       .rejection_bytes = 0,
                                       .partial_attention = false,
                                       .caches_values = true,
                                       .prefill_rows = 128}) {
        info_.name = "CPU";
        info_.architecture = to_text(pool().isa());
    }
    ~CpuBackend() override { drop_workspace(); }
    const DeviceInfo& info() const override { return info_; }
    bool is_host() const override { return true; }
    DeviceMemory& memory() override { return host_memory(); }
    void* allocate(std::size_t bytes) override { return host_memory().allocate(bytes); }
    void release(void* data) override { host_memory().release(data); }
    void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void copy(void* to, const void* from, std::size_t bytes) override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    Status synchronize() override { return status(); }
    void graph(std::uint64_t /*key*/, FunctionRef<void()> work) override { work(); }
    std::uint64_t new_graph_key() override { return ++keys_; }
    bool keeps_graphs() const override { return false; }
    int known_count(const std::int32_t* count, int /*bound*/) const override { return *count; }
    DeviceTimer* timer() override { return nullptr; }

    DS_DEVICE_OPS(DS_RUN_OP, DS_RUN_OP_BATCH)
    void fused_matmul(const FusedMatmulOp& op) override;
    bool prefers_matmul_topk(int n, int k) const override { return prefers_fused_topk(pool(), n, k); }
    bool splits_matmul_topk(int n, int k) const override { return !prefers_matmul_topk(n, std::min(n, k)); }
    void sample_and_follow(const RejectionSampleOp& op, int /*max_nodes*/,
                           std::span<const ListChildrenOp> lists,
                           std::span<const FollowAcceptedOp> paths) override {
        acceptance_.sample_and_follow(pool(), op, lists, paths);
    }
    void accept_typical_trees(const EntropyOp& entropy_op, std::span<const AcceptTypicalOp> trees) override {
        for (const AcceptTypicalOp& op : trees) acceptance_.accept_typical(pool(), op, &entropy_op);
    }
    void compact(std::span<const CompactOp> ops) override;

  private:
    template <typename Op>
    void run(const Op& /*op*/, const char* name) {
        set_error(std::string("the CPU has no op ") + name);
    }
    void run(const MatmulOp& op, const char*);
    void run(const RmsNormOp& op, const char*);
    void run(const CastOp& op, const char*);
    void run(const AddOp& op, const char*);
    void run(const SiluMulOp& op, const char*);
    void run(std::span<const CopyRowsOp> ops, const char*);
    void run(const RopeStoreOp& op, const char*);
    void run(const AttentionOp& op, const char*);
    void run(const TopKOp& op, const char*) { select_topk(pool(), op); }
    void run(const MatmulTopKOp& op, const char*);
    void run(const TopKSetOp& op, const char*) {
        kernels::topk_set(
            pool(), Rows<const float>(op.x, op.rows, op.columns, static_cast<std::ptrdiff_t>(op.stride)),
            op.k, Rows<std::int32_t>(op.ids, op.rows, op.k));
    }
    void run(const MatmulTopKSetOp& op, const char*);
    void run(const GatherColumnsOp& op, const char*) { SetOps::gather_columns(pool(), op); }
    void run(const UniqueTokensOp& op, const char*) { sets_.list_unique_tokens(pool(), op); }
    void run(const ClustersOp& op, const char*) { sets_.clusters(pool(), op); }
    void run(const ClusterTokensOp& op, const char*) { sets_.cluster_tokens(op); }
    void run(const RemapIdsOp& op, const char*) { SetOps::remap_ids(op); }
    void run(const RedistributeOp& op, const char*) { kernels::redistribute(pool(), op); }
    void run(const ReachableTokensOp& op, const char*) { sets_.list_reachable_tokens(op); }
    void run(const TopKTopPMaskOp& op, const char*) { kernels::mask_top_k_top_p(pool(), op, sampling_); }
    void run(const SampleOp& op, const char*) { kernels::sample(pool(), op, sampling_); }
    void run(const SampleWithoutReplacementOp& op, const char*);
    void run(const RejectionSampleOp& op, const char*) { acceptance_.rejection_sample(pool(), op); }
    void run(const RankOp& op, const char*);
    void run(const EntropyOp& op, const char*);
    void run(std::span<const SetProbabilityOp> ops, const char*);
    void run(std::span<const BeamOp> ops, const char*) {
        int missing = 0;  // nodes of the next level
        for (BeamOp op : ops) {
            if (op.packed) {
                op.next_tokens -= missing;
                op.next_rows -= missing;
                op.next_ancestor_slots -= static_cast<std::ptrdiff_t>(missing) * (op.level + 1);
                op.next_first_row -= missing;
            }
            trees_.beam(op);
            missing += op.keep - op.counts[1];
        }
    }
    void run(std::span<const RerankOp> ops, const char*) {
        for (const RerankOp& op : ops) trees_.rerank(op);
    }
    void run(std::span<const FollowArgmaxOp> ops, const char*) {
        for (const FollowArgmaxOp& op : ops) AcceptOps::follow_argmax(op);
    }
    void run(std::span<const AcceptTypicalOp> ops, const char*) {
        for (const AcceptTypicalOp& op : ops) acceptance_.accept_typical(pool(), op, nullptr);
    }
    void run(std::span<const ListChildrenOp> ops, const char*) {
        for (const ListChildrenOp& op : ops) AcceptOps::list_children(op);
    }
    void run(std::span<const FollowAcceptedOp> ops, const char*) {
        for (const FollowAcceptedOp& op : ops) AcceptOps::follow_accepted(op);
    }
    void announce(const FusedMatmulOp& op);
    Rows<float> product_rows(int rows, int n) {
        const std::size_t size = numel(rows, n);
        if (products_.size() < size) products_.resize(size);
        return {products_.data(), rows, n};
    }

    DeviceInfo info_;
    std::uint64_t keys_ = 0;
    std::vector<float> products_;          ///< of a product that is not stored
    std::vector<AttentionQuery> queries_;  ///< of an attention op
    std::vector<int> blocks_;              ///< of a product of selected outputs
    std::vector<float> set_logits_;        ///< of rows whose set needs all their logits
    TreeOps trees_;
    SetOps sets_;
    AcceptOps acceptance_;
    SampleScratch sampling_;
    std::vector<DraftSampleScratch> draft_sampling_;  ///< by thread
    PartialTopK partials_;
    std::vector<std::int32_t> order_, rank_rows_, rank_tokens_, ranks_;  ///< of a rank op
};

/// Sets the prefetch hints of a product.
void CpuBackend::announce(const FusedMatmulOp& op) {
    if (op.store != nullptr) {
        const AttentionBatch& batch = op.store->batch;
        const int width = op.store->shape.kv_heads * op.store->shape.head_dim;
        int sequence = -1, block = -1;
        for (int r = 0; r < op.store->rows; ++r) {
            if (batch.sequence[r] == sequence && batch.slot[r] / key_lanes == block) continue;
            sequence = batch.sequence[r];
            block = batch.slot[r] / key_lanes;
            const KvPlanes& cache = batch.caches[sequence];
            prefetch_key(cache.type, width, batch.slot[r], const_cast<half_t*>(cache.keys(op.store->layer)));
        }
    }
    if (op.next_is_gated)
        prefetch_next_gated(pool(), *op.next.packed);
    else
        prefetch_next(pool(), op.next.packed);
}

void CpuBackend::fused_matmul(const FusedMatmulOp& op) {
    const MatmulOp& product = op.product;
    assert(product.weights.packed != nullptr && product.chosen == nullptr);
    const Matrix& weights = *product.weights.packed;
    const int n = weights.n(), k = weights.k();
    Rows<const float> x(product.x.floats, product.rows, k, product.weights.stride);
    PreNorm norm;
    if (op.norm.x != nullptr) {
        x = {op.norm.x, product.rows, k, static_cast<std::ptrdiff_t>(op.norm.x_stride)};
        if (op.norm.weight != nullptr) norm = {{op.norm.weight, static_cast<std::size_t>(k)}, op.norm.eps};
    }
    const Rows<float> y(product.y, product.rows, n, static_cast<std::ptrdiff_t>(product.y_stride));
    announce(op);
    if (op.gated) {
        assert(product.bias == nullptr && !product.accumulate);
        norm_matmul_silu(pool(), weights, norm, x, y,
                         Rows<float>(op.gated.floats, product.rows, n / 2, op.gated_stride));
    } else if (product.accumulate) {
        assert(product.bias == nullptr && norm.weight.empty());
        matmul_add(pool(), weights, x, product_rows(product.rows, n), y);
    } else {
        norm_matmul(pool(), weights, norm, x, y, product.bias);
    }
}

void CpuBackend::run(const RmsNormOp& op, const char*) {
    const RowKernels& kernels = row_kernels(pool());
    const std::size_t bytes = op.width * sizeof(float);
    const auto norm_group = [&](int thread, int row, int group) {
        const std::int64_t first = std::int64_t{group} * op.width;
        const float* x = op.x + row * op.x_stride + first;
        float* y = op.y == nullptr ? nullptr : op.y + row * op.y_stride + first;
        float* activations = !op.half ? nullptr : op.half.floats + std::int64_t{row} * op.half_stride + first;
        float* out = op.add         ? reinterpret_cast<float*>(pool().scratch(thread, bytes))
                     : y != nullptr ? y
                                    : activations;
        kernels.rms_norm(x, op.weight, op.eps, op.width, out);
        if (op.add) kernels.add(out, op.width, y);
        if (activations != nullptr && activations != out) std::memcpy(activations, out, bytes);
    };
    split_range(pool(), op.rows, std::int64_t{op.rows} * op.groups * op.width,
                [&](int thread, int begin, int end) {
                    for (int r = begin; r < end; ++r)
                        for (int g = 0; g < op.groups; ++g) norm_group(thread, r, g);
                });
}

void CpuBackend::run(const CastOp& op, const char*) {
    for (int r = 0; r < op.rows; ++r) {
        const float* x = op.x + r * op.x_stride;
        std::transform(x, x + op.cols, op.y.floats + r * op.y_stride,
                       [&](float value) { return activate(op.activation, value); });
    }
}

void CpuBackend::run(const AddOp& op, const char*) {
    for (int r = 0; r < op.rows; ++r) {
        const float* x = op.x + r * op.x_stride;
        float* y = op.y + r * op.y_stride;
        const float* base = !op.base ? y : op.base.floats + r * op.base_stride;
        for (int c = 0; c < op.cols; ++c) y[c] = base[c] + activate(op.activation, x[c]);
    }
}

void CpuBackend::run(const SiluMulOp& op, const char*) {
    const std::ptrdiff_t stride = op.x_stride;
    kernels::silu_mul(pool(), Rows<const float>(op.x, op.rows, op.width, stride),
                      Rows<const float>(op.x + op.width, op.rows, op.width, stride),
                      Rows<float>(op.y.floats, op.rows, op.width, op.y_stride));
}

void CpuBackend::run(std::span<const CopyRowsOp> ops, const char*) {
    for (const CopyRowsOp& op : ops)
        for (int i = 0; i < op.count; ++i) {
            const std::int64_t from = op.rows == nullptr ? i : op.rows[i];
            std::memcpy(op.to + i * op.to_stride, op.from + from * op.from_stride, op.cols * sizeof(float));
        }
}

void CpuBackend::run(const RopeStoreOp& op, const char*) {
    const RowKernels& kernels = row_kernels(pool());
    const AttentionHeads& shape = op.shape;
    const int rotated = shape.heads + shape.kv_heads, half = shape.head_dim / 2;
    const int width = shape.kv_heads * shape.head_dim;
    split_range(pool(), op.rows, std::int64_t{op.rows} * rotated * shape.head_dim,
                [&](int, int begin, int end) {
                    for (int r = begin; r < end; ++r) {
                        const std::int64_t at = std::int64_t{op.batch.position[r]} * half;
                        kernels.rope(op.qkv + r * op.stride, rotated, half, op.cos + at, op.sin + at);
                    }
                });
    for (int r = 0; r < op.rows; ++r) {
        const KvPlanes& cache = op.batch.caches[op.batch.sequence[r]];
        const int slot = op.batch.slot[r];
        const float* key = op.qkv + r * op.stride + std::int64_t{shape.heads} * shape.head_dim;
        store_key(pool(), cache.type, key, width, slot, const_cast<half_t*>(cache.keys(op.layer)));
        store_value(pool(), cache.type, key + width, width, slot,
                    const_cast<half_t*>(cache.values(op.layer)));
    }
}

void CpuBackend::run(const AttentionOp& op, const char*) {
    if (op.rows == 0) return;
    const AttentionBatch& batch = op.batch;
    queries_.resize(op.rows);
    for (int i = 0; i < op.rows; ++i) {
        const int r = op.first_row + i;
        const KvPlanes& cache = batch.caches[batch.sequence[r]];
        AttentionQuery& query = queries_[i];
        query.q = op.q + r * op.q_stride;
        query.out = op.y.floats + std::int64_t{r} * op.y_stride;
        query.keys = cache.keys(op.layer);
        query.values = cache.values(op.layer);
        query.prefix = batch.prefix[r];
        query.ancestor_slots = {batch.ancestor_slots + batch.ancestor_first[r],
                                static_cast<std::size_t>(batch.ancestor_count[r])};
    }
    const KvType type = batch.caches[batch.sequence[op.first_row]].type;
    kernels::attention(pool(), {op.shape.heads, op.shape.kv_heads, op.shape.head_dim, op.scale, type},
                       queries_);
}

void CpuBackend::run(const MatmulOp& op, const char*) {
    if (op.chosen == nullptr) {
        FusedMatmulOp alone;
        alone.product = op;
        return fused_matmul(alone);
    }
    assert(op.bias == nullptr && !op.accumulate);
    const int count = *op.chosen_count;
    const Rows<const float> x(op.x.floats, op.rows, op.weights.k, op.weights.stride);
    const Rows<float> y(op.y, op.rows, count, static_cast<std::ptrdiff_t>(op.y_stride));
    prefetch_next(pool(), nullptr);
    if (op.weights.row_major != nullptr)
        return matmul_rows(pool(), *op.weights.row_major, {op.chosen, static_cast<std::size_t>(count)}, x, y);
    // Of a packed matrix, whole blocks are selected.
    blocks_.clear();
    for (int c = 0; c < count; c += cluster_block) blocks_.push_back(op.chosen[c] / cluster_block);
    matmul_blocks(pool(), *op.weights.packed, blocks_, x, y);
}

void CpuBackend::run(const MatmulTopKSetOp& op, const char*) {
    const Matrix& weights = *op.weights.packed;
    const Rows<const float> x(op.x.floats, op.rows, weights.k(), op.weights.stride);
    prefetch_next(pool(), nullptr);
    kernels::matmul_topk_set(pool(), weights, x, op.k, Rows<std::int32_t>(op.ids, op.rows, op.k),
                             set_logits_);
}

void CpuBackend::run(const MatmulTopKOp& op, const char*) {
    assert(op.weights.packed != nullptr);
    const Matrix& weights = *op.weights.packed;
    const Rows<const float> x(op.x.floats, op.rows, weights.k(), op.weights.stride);
    const int num_selected = std::min(op.k, op.support);
    const Rows<std::int32_t> ids(op.ids, op.rows, num_selected, op.k);
    const Rows<float> values(op.values, op.rows, num_selected, op.k);
    prefetch_next(pool(), nullptr);
    kernels::matmul_topk(pool(), weights, x, op.support, num_selected, op.bias, partials_);
    finish_logsumexp(partials_, std::span(op.logsumexp, op.rows));
    finish_topk(partials_, ids, values);
    for (int r = 0; r < op.rows && num_selected < op.k; ++r) {
        const std::ptrdiff_t first = std::ptrdiff_t{r} * op.k;
        std::fill(op.ids + first + num_selected, op.ids + first + op.k, -1);
        std::fill(op.values + first + num_selected, op.values + first + op.k,
                  -std::numeric_limits<float>::infinity());
    }
}

void CpuBackend::run(const SampleWithoutReplacementOp& op, const char*) {
    draft_sampling_.resize(pool().threads());
    run_threads(pool(), std::min(pool().threads(), op.rows), [&](int thread) {
        for (int r = thread; r < op.rows; r += std::min(pool().threads(), op.rows)) {
            const std::int64_t first = r * op.stride;
            const bool has_sizes = op.sizes != nullptr;
            const std::size_t size = has_sizes ? op.sizes[r] : op.support;
            DraftProbs q{{op.logits + first, size}};
            if (has_sizes && op.tokens != nullptr) q.ids = {op.tokens + first, size};
            DraftSampleScratch& scratch = draft_sampling_[thread];
            make_distribution(pool(), op.temperature, op.top_k, op.top_p, scratch, q);
            const std::int64_t out = std::int64_t{r} * op.k;
            const std::size_t count = op.k;
            sample_drafts(q, {op.uniforms + out, count}, scratch, {op.ids + out, count},
                          {op.logprobs + out, count});
        }
    });
}

/// Counts the ranks of the tokens of one row in one pass over it.
void CpuBackend::run(const RankOp& op, const char*) {
    for (int i = 0; i < op.count; ++i) op.values[i] = op.logits[op.rows[i] * op.stride + op.tokens[i]];
    if (op.ranks == nullptr) return;
    order_.resize(op.count);
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::sort(
        order_, [&](int a, int b) { return op.rows[a] != op.rows[b] ? op.rows[a] < op.rows[b] : a < b; });
    rank_rows_.clear();
    rank_tokens_.clear();
    for (const int i : order_) {
        rank_rows_.push_back(op.rows[i]);
        rank_tokens_.push_back(op.tokens[i]);
    }
    ranks_.resize(op.count);
    const int rows = rank_rows_.empty() ? 0 : rank_rows_.back() + 1;
    token_ranks(pool(), Rows<const float>(op.logits, rows, op.vocab, static_cast<std::ptrdiff_t>(op.stride)),
                rank_rows_, rank_tokens_, ranks_);
    for (int i = 0; i < op.count; ++i) op.ranks[order_[i]] = ranks_[i];
}

void CpuBackend::run(const EntropyOp& op, const char*) {
    split_range(pool(), op.rows, std::int64_t{op.rows} * op.vocab, [&](int, int begin, int end) {
        for (int r = begin; r < end; ++r) {
            const float least = min_logit_of(op.min_logit, r);
            op.out[r] = static_cast<float>(
                kernels::entropy({op.logits + r * op.stride, static_cast<std::size_t>(op.vocab)},
                                 {op.inv_temperature, op.log_norm[r], least}));
        }
    });
}

void CpuBackend::run(std::span<const SetProbabilityOp> ops, const char*) {
    for (const SetProbabilityOp& op : ops) {
        const int count = op.d_count == nullptr ? op.count : *op.d_count;
        for (int i = 0; i < count; ++i) {
            const int row = op.first_row + op.rows[i];
            const float least = min_logit_of(op.min_logit, row);
            op.out[i] = set_probability(pool(), op.logits + row * op.stride,
                                        {op.ids + op.first[i], static_cast<std::size_t>(op.size[i])},
                                        {op.inv_temperature, op.log_norm[row], least});
        }
    }
}

void CpuBackend::compact(std::span<const CompactOp> ops) {
    for (const CompactOp& op : ops) {
        const std::size_t bytes = op.width * bytes_per_value(op.cache.type);
        // In ascending order no source is overwritten before it is read.
        for (int i = 0; i < *op.count; ++i) {
            const int to = op.first + i, from = op.first + op.path[i];
            assert(from >= to && (i == 0 || op.path[i] > op.path[i - 1]));
            if (from == to) continue;
            for (int layer = 0; layer < op.planes / 2; ++layer) {
                move_key(op.cache.type, op.width, const_cast<half_t*>(op.cache.keys(layer)), from, to);
                auto* values = reinterpret_cast<std::byte*>(const_cast<half_t*>(op.cache.values(layer)));
                std::memcpy(values + numel(to, bytes), values + numel(from, bytes), bytes);
            }
        }
    }
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::unique_ptr<ThreadPool> pool) {
    return std::make_unique<CpuBackend>(std::move(pool));
}

}  // namespace draftscope::kernels
