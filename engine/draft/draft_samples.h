#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/growing_tree.h"
#include "engine/heads/head_call.h"
#include "engine/round/step.h"

namespace draftscope {

/// Drafts sampled from the LM head's distributions, while trees grow. Each node whose children are sampled
/// has a row: the logits of its support, which the sampling turns into q. The rows of all levels are stored
/// one level after another, because the acceptance reads them. The caller holds Backend::submit_mutex().
class DraftSamples {
  public:
    /// Allocates rows for all levels of the trees if `context` samples drafts. `shared`: one row of the head
    /// serves all nodes of a tree's level. Returns false if out of memory.
    bool prepare(const DraftContext& context, RoundStep& step, std::span<const GrowingTree> trees, int levels,
                 int topk, bool shared);
    /// Returns whether drafts are sampled.
    bool active() const { return settings_ != nullptr; }
    /// Index of the level's first row.
    int first_row(int level) const { return first_rows_[level]; }
    /// Sets where the head stores the logits of a call.
    void set_outputs(HeadCall& call) const;
    /// Enqueues the sampling of the drafts of a level: `topk` ids and log-probabilities for each node of
    /// `trees`.
    void enqueue(PhaseRecorder& phases, int level, std::span<GrowingTree* const> trees, std::int32_t* ids,
                 float* logprobs);
    /// Returns the rows after all levels. `tokens` are the head's tokens of its outputs, null = all.
    DraftProbs rows(const TokenId* tokens) const;

  private:
    void add_uniforms(const GrowingTree& tree, int level, int nodes);
    void copy_shared_rows(int level, std::span<GrowingTree* const> trees);
    float* logits(int row) const { return logits_ + numel(row, columns_.stride); }
    std::int32_t* tokens(int row) const { return tokens_ + numel(row, columns_.stride); }
    int planned_rows(int level) const { return first_rows_[level + 1] - first_rows_[level]; }
    /// Index at which a head stores a level's rows: after all others if one row serves several nodes.
    int stored_at(int level) const { return level > 0 && shared_ ? first_rows_.back() : first_rows_[level]; }

    const DraftSampling* settings_ = nullptr;
    RoundStep* step_ = nullptr;
    bool shared_ = false;
    int topk_ = 0;
    SupportColumns columns_;
    std::vector<int> first_rows_;  ///< [levels + 1]
    std::vector<double> host_uniforms_;
    float *logits_ = nullptr, *min_logit_ = nullptr;
    double* uniforms_ = nullptr;  ///< [rows, topk]
    /// Tokens [rows, stride] of rows with columns of their own, their numbers, and scratch.
    std::int32_t *tokens_ = nullptr, *sizes_ = nullptr, *last_tied_ = nullptr;
};

}  // namespace draftscope
