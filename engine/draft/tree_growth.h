#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/draft/candidate_pool.h"
#include "engine/draft/draft_samples.h"
#include "engine/draft/growing_tree.h"
#include "engine/draft/head_calls.h"

namespace draftscope {

/// Computes a level's rows for the LM head, by a layer over the previous level or a head per level. EAGLE
/// is of the first kind, Medusa and Hydra of the second. The caller holds Backend::submit_mutex().
class LevelRows {
  public:
    struct Level {
        DraftContext& context;
        RoundStep& step;
        int level = 0, rows = 0;
        std::span<GrowingTree* const> trees;
        bool needs_inputs = false;  ///< whether the LM head reads HeadCall::inputs
        // Of the level's nodes; a tree's start at first_node. Null at level 0, whose nodes are the roots.
        const std::int32_t* tokens = nullptr;
        const std::int32_t* parents = nullptr;         ///< nodes of the previous level
        const std::int32_t* ancestor_slots = nullptr;  ///< [nodes, level], as from BeamOp
    };
    virtual ~LevelRows() = default;
    virtual int hidden() const = 0;
    /// Returns whether one row serves all nodes of a tree's level, because rows do not depend on the path.
    virtual bool shared_logits() const { return false; }
    /// Allocates memory for levels of up to `nodes` nodes of `trees` trees. Returns false if out of memory.
    virtual bool reserve(RoundStep& step, int trees, int nodes) = 0;
    /// Enqueues the rows of a level. `inputs_known` is called after their inputs are enqueued and before the
    /// long-running work, but not at level 0, whose inputs are known before. It gets HeadCall::inputs,
    /// complete if needs_inputs.
    virtual Status enqueue(const Level& level, FunctionRef<void(const float* inputs)> inputs_known) = 0;
    /// Enqueues and returns the rows as input of the LM head, [rows, padded_columns(d)].
    virtual kernels::Activations enqueue_head_rows(int rows) = 0;
};

/// Grows trees level by level (EAGLE-2, arXiv 2406.16858). Candidates, the next level's nodes, their rows and
/// their ancestor slots are computed on the backend. Levels have the nodes of the plan, or fewer as far as
/// the backend knows of missing candidates. The caller holds Backend::submit_mutex(), except in check() and
/// collect().
class TreeGrowth {
  public:
    /// `name` is the drafter's, for errors.
    TreeGrowth(LevelRows& rows, std::string_view name) : rows_(rows), name_(name) {}

    /// Checks that the backend's ops can grow these trees with the context's head.
    static Status check(const DraftContext& context, std::span<const DraftJob> jobs);
    /// Allocates the memory of the round and gathers the trees' indices; call it first. `trees` stay valid
    /// until collect().
    Status prepare(DraftContext& context, RoundStep& step, std::span<GrowingTree> trees);
    /// Begins the head's first call, concurrently with the pass that computes the roots' outputs. Call it
    /// when the roots' inputs are enqueued.
    void begin(DraftContext& context);
    /// Enqueues all levels and re-ranks the trees into the rows of the step. Sets DraftJob::rows_per_call.
    /// Waits only if the context's observer observes the levels.
    Status enqueue(DraftContext& context);
    /// Passes the downloaded values to the head and reads the trees of the jobs that are not known. Call it
    /// after Backend::synchronize().
    Status collect(const RoundStep& step, std::span<DraftJob> jobs);

  private:
    Status grow_level(DraftContext& context, int level, std::span<GrowingTree* const> trees);
    Status enqueue_head(DraftContext& context, int rows);
    Status show_level(DraftContext& context, int level, std::span<GrowingTree* const> trees);
    Status read_partial(const GrowingTree& tree, int level, DraftTree& out);
    void rerank(PhaseRecorder& phases);
    Error not_numbers(const DraftJob& job, int level) const;
    Status check_numbers(const DraftJob& job) const;

    LevelRows& rows_;
    std::string name_;
    RoundStep* step_ = nullptr;
    std::span<GrowingTree> trees_;
    HeadCalls calls_;
    DraftSamples samples_;
    CandidatePool pool_;
    float* roots_ = nullptr;                       ///< [trees, 2d] inputs of the roots' rows
    std::optional<std::size_t> candidates_index_;  ///< in the results, if the context keeps candidates
};

}  // namespace draftscope
