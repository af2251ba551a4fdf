#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/numel.h"
#include "base/phase.h"
#include "engine/draft/draft_samples.h"
#include "engine/draft/growing_tree.h"
#include "engine/draft/tree_levels.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/head_call.h"
#include "engine/transformer/tree_step.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Computes the rows of a level: a layer over the previous level, or a head per level. EAGLE is
/// of the first kind, Medusa and Hydra of the second. The caller holds Backend::submit_mutex().
class LevelRows {
  public:
    struct Level {
        DraftContext& context;
        DeviceSpans& spans;
        int level = 0, rows = 0;
        std::span<GrowingTree* const> trees;
        bool inputs_wanted = false;  ///< whether the LM head reads HeadCall::inputs
        // Of the level's nodes; a tree's start at first_node. Null at level 0, whose nodes are the roots.
        const std::int32_t* tokens = nullptr;
        const std::int32_t* parents = nullptr;         ///< nodes of the previous level
        const std::int32_t* ancestor_slots = nullptr;  ///< [nodes, level], as from BeamOp
    };
    virtual ~LevelRows() = default;
    /// The device that computes them; on the CPU, that of the latest call.
    virtual kernels::Backend& device() = 0;
    virtual int hidden() const = 0;
    /// Returns whether one row serves all nodes of a tree's level, because rows do not depend on the path.
    virtual bool shared_logits() const { return false; }
    /// Reserves memory for levels of up to `nodes` nodes of `trees` trees. Returns false if memory runs out.
    virtual bool make_room(int trees, int nodes) = 0;
    /// Called when the arrays of ancestor slots have moved.
    virtual void tails_moved() {}
    /// Enqueues the rows of a level. `inputs_known` is called after their inputs are enqueued and before the
    /// long-running work, but not at level 0, whose inputs are known before. It gets HeadCall::inputs,
    /// complete if inputs_wanted.
    virtual Status enqueue(const Level& level, FunctionRef<void(const float* inputs)> inputs_known) = 0;
    /// Enqueues and returns the rows as input of the LM head, [rows, padded_columns(d)].
    virtual kernels::Activations enqueue_head_rows(int rows) = 0;
};

/// Grows trees level by level (EAGLE-2, arXiv 2406.16858). Candidates, the next level's nodes, their rows and
/// their ancestor slots are computed on the device, and the host waits once for the trees. On the CPU, a
/// level has as many rows as it has candidates; a device's levels have the rows of the plan. The caller holds
/// Backend::submit_mutex(), except in check() and collect().
class TreeGrowth {
  public:
    /// `name` is the drafter's, for errors.
    TreeGrowth(LevelRows& rows, std::string_view name) : rows_(rows), name_(name) {}

    /// Returns the size of a tree of this shape as rows of a step.
    static TreePlan plan(const TreeSpec& tree);
    /// Checks that a device's ops can grow these trees with the context's head.
    Status check(const DraftContext& context, std::span<const DraftJob> jobs);
    /// Reserves all memory of the round; call it first. Returns false if memory runs out.
    bool prepare(const DraftContext& context, std::span<GrowingTree> trees);
    /// Begins the head's first level, concurrently with the pass that computes the roots' outputs. Call it
    /// when the roots' inputs are enqueued.
    void begin(DraftContext& context, std::span<GrowingTree> trees, DeviceSpans& spans, const TreeStep& step);
    /// Enqueues all levels and re-ranks the trees into the rows of `step`. Sets DraftJob::rows_per_call.
    /// Waits only if the context's observer observes the levels.
    Status enqueue(DraftContext& context, std::span<GrowingTree> trees, TreeStep& step);
    /// Passes the downloaded values to the head and reads the jobs' trees from `step`. Call it after
    /// Backend::synchronize().
    Status collect(const TreeStep& step, std::span<DraftJob> jobs);

  private:
    struct Call {
        int level, rows;
        std::vector<HeadSequence> sequences;
        std::size_t downloads, download_count;
    };
    int rows_of(const GrowingTree& tree) const { return rows_.shared_logits() ? 1 : tree.nodes; }
    int planned_rows(const GrowingTree& tree, int level) const;
    bool inputs_wanted() const { return head_->needs().inputs; }
    bool on_host() const { return rows_.device().is_host(); }
    void activate(std::span<GrowingTree> trees);
    bool place_downloads(std::span<const GrowingTree> trees);
    std::size_t set_at(int place, int level) const { return numel(place, levels_ + 1) + level; }
    void begin_head(DraftContext& context, int level, int rows, const float* inputs);
    Status enqueue_head(DraftContext& context, int rows);
    HeadCall call_of(DraftContext& context, const Call& enqueued);
    void hand_sets(std::span<const GrowingTree> trees, TreeStep& step);
    Status show_level(DraftContext& context, int level);
    Status read_partial(const GrowingTree& tree, int level, DraftTree& out);
    kernels::RerankOp rerank_op(const GrowingTree& tree) const;
    void place(std::span<GrowingTree> trees);
    void rerank(PhaseRecorder& phases, std::span<const GrowingTree> trees, TreeStep& step);
    Status enqueue_rows(DraftContext& context, int level, int rows);
    Status propose(DraftContext& context, int level, int rows);
    kernels::BeamOp extend(const GrowingTree& tree, int level, bool goes_on, int next_first);

    Error not_numbers(const DraftJob& job, int level) const;
    Status check_numbers(const DraftJob& job) const;

    std::int32_t* ancestor_slots(int level) const { return tails_[level % 2].as<std::int32_t>(); }

    LevelRows& rows_;
    std::string_view name_;
    std::vector<GrowingTree*> active_;  ///< trees that the level grows
    // On the CPU:
    std::int32_t counts_[2] = {};            ///< BeamOp::counts
    std::vector<std::int32_t> static_rows_;  ///< [trees, index_stride_] BeamOp::static_rows
    DraftSamples samples_;
    std::vector<kernels::BeamOp> beams_;  ///< of a level
    std::vector<kernels::RerankOp> reranks_;
    std::vector<kernels::CopyRowsOp> copies_;
    std::vector<const TreeSpec*> specs_;
    StaticLevels static_levels_;
    TreeStep partial_;                     ///< the trees of an observed level
    DeviceSpans* spans_ = nullptr;         ///< of the round
    int topk_ = 0;                         ///< candidates per row, the maximum over the trees
    int index_stride_ = 0;                 ///< of scores_ and places_, at least the nodes of a tree's level
    LmHead* head_ = nullptr;               ///< of the round, until collect()
    const std::int32_t* names_ = nullptr;  ///< tokens of the level's ids
    std::vector<Call> calls_;              ///< by level; the first num_calls_ are valid
    std::size_t num_calls_ = 0;
    int levels_ = 0;
    // Four-byte values that the head stores: sizes of sets, values that it downloads by level, then the sets.
    std::vector<std::int32_t> set_first_;      ///< [trees, levels_ + 1] indices in the sets
    std::vector<std::size_t> download_first_;  ///< [levels_ + 1]
    std::size_t words_ = 0, set_words_ = 0;
    std::vector<std::int32_t> left_;  ///< downloaded values
    // Of one call:
    std::vector<std::span<const TokenId>> call_sets_;
    std::vector<std::int32_t> call_sizes_;
    bool wants_sets_ = false, sets_requested_ = false, sets_here_ = false;
    std::size_t cells_ = 0;  ///< candidates of all levels
    kernels::DeviceArray<std::int32_t> d_left_, d_sets_;
    kernels::DeviceBuffer best_, logits_, sums_, scores_, places_, tokens_, parents_, pool_, roots_,
        tails_[2];
};

}  // namespace draftscope
