#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "kernels/device_array.h"
#include "kernels/host_rows.h"

namespace draftscope {

/// A draft distribution q.
struct DraftDistribution {
    std::vector<TokenId> tokens;  ///< ascending; empty = probs[i] is that of token i
    std::vector<float> probs;
};

/// Overlap of the target's distribution p and the draft distribution q at one draft level. At a position it
/// is alpha, the sum of min(p, q) over all tokens (SlimSpec, arXiv 2605.10453, section 4.2).
struct LevelOverlap {
    double alpha_sum = 0;
    std::int64_t positions = 0;
};

/// Drafts chains as another head does, and keeps the distributions that its tokens are taken from. For
/// backends in host memory. The best token of a row is selected here, from all logits of the head's support.
class OverlapHead final : public LmHead {
  public:
    /// Keeps q as drafts are sampled from it: after temperature, top-k and top-p. `head` is prepared and
    /// outlives this.
    OverlapHead(LmHead& head, const DraftSampling& sampling)
        : LmHead(head.needs()), head_(head), sampling_(sampling) {}

    /// Returns q of the tree's node at `level`; null if the chain ended before.
    const DraftDistribution* distribution(const DraftJob& chain, int level) const;

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        return head_.prepare(backend, weights);
    }
    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId> prompt,
                                            Rows<const TokenId> best) override {
        return head_.begin_prompt(prompt, best);
    }
    CallShape shape(int level, int rows) const override { return head_.shape(level, rows); }
    bool reserve(kernels::Backend& backend, int levels, int rows, int k) override;
    void begin(HeadCall& call) override;
    void propose(HeadCall& call) override;
    void collect(const HeadReadback& back) override { head_.collect(back); }
    void on_verified(HeadState* state, const DraftTree& tree, const Outcome& outcome) override {
        head_.on_verified(state, tree, outcome);
    }
    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        return head_.cost_at(state, rows, level);
    }
    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const override {
        return head_.active_set(state, level, memory);
    }

  private:
    struct SequenceDistribution {
        int sequence = 0;
        DraftDistribution q;
    };
    void select(HeadCall& call, int row, const float* logits, const TokenId* tokens, int size);
    void keep(const kernels::Backend& backend, SequenceDistribution& entry, const float* logits,
              const TokenId* tokens, int size);

    LmHead& head_;
    DraftSampling sampling_;
    kernels::DraftSampleScratch scratch_;
    SupportColumns columns_;
    std::vector<std::vector<SequenceDistribution>> levels_;  ///< of the latest chains
    kernels::DeviceArray<float> logits_;
    kernels::DeviceArray<std::int32_t> tokens_, sizes_;
};

}  // namespace draftscope
