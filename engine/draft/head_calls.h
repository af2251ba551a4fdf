#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/growing_tree.h"
#include "engine/heads/head_call.h"
#include "engine/round/step.h"

namespace draftscope {

/// The calls of the LM head while trees grow: one per level, over the rows of all trees. The head
/// stores the tokens that it can propose and other values, which are downloaded with the step. The caller
/// holds Backend::submit_mutex(), except in collect().
class HeadCalls {
  public:
    /// Reserves the memory of all calls of a round, up to `levels` of them with at most `max_rows` rows.
    /// `shared`: one row serves all nodes of a tree's level. Returns false if out of memory.
    bool prepare(DraftContext& context, RoundStep& step, std::span<const GrowingTree> trees, int levels,
                 int topk, int max_rows, bool shared);
    bool needs_inputs() const { return head_->needs().inputs; }
    /// Begins a level's call, before its rows are computed.
    void begin(DraftContext& context, int level, std::span<GrowingTree* const> trees, int rows,
               const float* inputs);
    /// Returns the call that was begun last, for LmHead::propose(); the caller sets where the results go.
    HeadCall current(DraftContext& context) { return call_of(context, calls_[count_ - 1]); }
    void propose(HeadCall& call) { head_->propose(call); }
    /// Hands the tokens that the trees' rows could propose to the step, and requests the values for
    /// collect().
    void finish(std::span<const GrowingTree> trees, bool report_coverage);
    /// Passes the downloaded values to the head.
    void collect();

  private:
    struct Call {
        int level, rows;
        std::span<HeadSequence> sequences;
    };
    std::size_t set_at(int tree, int level) const { return numel(tree, levels_ + 1) + level; }
    HeadCall call_of(DraftContext& context, const Call& call);
    void allocate_values(std::span<const GrowingTree> trees);

    RoundStep* step_ = nullptr;
    LmHead* head_ = nullptr;
    int topk_ = 0, levels_ = 0;
    bool shared_ = false;
    std::span<Call> calls_;  ///< by level; the first count_ are begun
    std::size_t count_ = 0;
    // Values of 4 bytes that the head stores: the sizes of its sets, then those that it downloads by level.
    std::int32_t* values_ = nullptr;
    TokenId* sets_ = nullptr;
    std::span<std::int32_t> set_first_;              ///< [trees, levels + 1] indices in sets_
    std::span<std::size_t> value_first_;             ///< [levels + 1] indices in values_
    std::size_t set_tokens_ = 0;                     ///< capacity of sets_
    std::size_t values_index_ = 0, sets_index_ = 0;  ///< in RoundResults
    bool reads_sets_ = false;                        ///< the head gets the tokens of its sets back
    // Of one call:
    std::vector<std::span<const TokenId>> call_sets_;
    std::vector<std::int32_t> call_sizes_;
};

}  // namespace draftscope
