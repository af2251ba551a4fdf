#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/growing_tree.h"
#include "engine/heads/head_call.h"
#include "engine/transformer/tree_step.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Drafts sampled from the LM head's distributions, while trees grow. Each node whose children are sampled
/// has a row: the logits of its support, which the sampling turns into q. The rows of all levels are stored
/// one level after another, because the acceptance reads them. The caller holds Backend::submit_mutex().
class DraftSamples {
  public:
    /// Reserves rows for all levels of the trees if `context` samples drafts. `shared`: one row of the head
    /// serves all nodes of a tree's level. Returns false if out of memory.
    bool prepare(kernels::Backend& backend, const DraftContext& context, std::span<const GrowingTree> trees,
                 int levels, int k, bool shared);
    /// Returns whether drafts are sampled.
    bool active() const { return settings_ != nullptr; }
    /// Index of the level's first row.
    int first_row(int level) const { return first_rows_[level]; }
    /// Sets where the head stores the logits of a call.
    void aim(HeadCall& call) const;
    /// Enqueues the sampling of the drafts of a level: k `ids` and `logprobs` for each node of `trees`.
    void enqueue(DraftContext& context, DeviceSpans& spans, int level, std::span<GrowingTree* const> trees,
                 std::int32_t* ids, float* logprobs);
    /// Returns the rows after all levels. `tokens` are the head's tokens of its outputs, null = all.
    DrawnFrom rows(const TokenId* tokens) const;

  private:
    void place_rows(std::span<const GrowingTree> trees);
    void add_uniforms(const GrowingTree& tree, int level, int nodes);
    void upload_uniforms(int level, std::span<GrowingTree* const> trees);
    void give_each_node_a_row(int level, std::span<GrowingTree* const> trees);
    float* logits(int row) const { return logits_.data() + numel(row, columns_.stride); }
    std::int32_t* tokens(int row) const { return tokens_.data() + numel(row, columns_.stride); }
    /// Index at which a head stores a level's rows: after all others if one row serves several nodes.
    int stored_at(int level) const { return level > 0 && shared_ ? first_rows_.back() : first_rows_[level]; }

    const DraftSampling* settings_ = nullptr;
    kernels::Backend* backend_ = nullptr;
    bool shared_ = false;
    int levels_ = 0, k_ = 0;
    SupportColumns columns_;
    std::vector<int> first_rows_;      ///< [levels + 1]
    std::vector<double> uniforms_;     ///< [rows, k]
    std::vector<std::int32_t> sizes_;  ///< of rows with columns of their own
    std::vector<kernels::CopyRowsOp> copies_;
    kernels::DeviceArray<float> logits_, lowest_;
    kernels::DeviceArray<double> d_uniforms_;
    kernels::DeviceArray<std::int32_t> tokens_, last_, d_sizes_;
};

}  // namespace draftscope
