#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/notes.h"
#include "base/phase.h"
#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/round/device_spans.h"
#include "engine/round/step.h"
#include "engine/transformer/target.h"
#include "engine/tree/draft_candidates.h"
#include "engine/tree/draft_tree.h"

/// Drafters: one file per drafter, one entry in the registry.
namespace draftscope {

/// Observes the levels of a round, and may hold the round between levels.
class LevelObserver {
  public:
    virtual ~LevelObserver() = default;
    /// Returns whether the levels of this step are observed one by one.
    virtual bool observing() const { return true; }
    /// Called after each level's candidates are complete; may block (stepping by level). `partial` builds the
    /// tree on demand.
    virtual void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) = 0;
};

/// What a drafter works with in one step.
struct DraftContext {
    kernels::Backend& backend;  ///< that of the target
    PhaseRecorder& phases;
    LmHead* head = nullptr;  ///< null for drafters that use no head
    TreeSpec tree;
    LevelObserver* observer = nullptr;
    const DraftSampling* sampled =
        nullptr;                  ///< sample drafts from the head's distribution; null = take its best tokens
    bool report_coverage = true;  ///< whether this step reports what the head covered
    bool keep_candidates = false;  ///< fill in DraftJob::candidates
};

/// Per-sequence state (the drafter's own KV cache, suffix index, ...).
class DrafterState {
  public:
    virtual ~DrafterState() = default;
};

/// One sequence of a round. `tokens` holds every committed token. The last one is the root of the tree and
/// has no target KV yet. `new_hidden` and `new_aux` are the target's features, rounded to bf16, of the slots
/// verified since the last call. They are in slot order; the first call has all prompt slots.
struct DraftJob {
    int sequence = 0;  ///< ordinal in the run; keys the random numbers of sampled drafts
    std::span<const TokenId> tokens;
    Rows<const float> new_hidden;  ///< [new, d]
    Rows<const float> new_aux;     ///< [new, 3d] or empty
    /// The same features in the backend's memory, in place of both.
    const float* device_features = nullptr;
    int device_rows = 0;
    DrafterState* state = nullptr;
    HeadState* head_state = nullptr;
    TreeSpec tree;          ///< context.tree, clipped near the context limit
    int tree_index = 0;     ///< of its tree in the RoundStep
    bool is_known = false;  ///< `out` is complete after Drafter::begin()
    // Filled by the drafter:
    DraftTree out;
    DraftCandidates candidates;      ///< of `out`, if the context keeps them
    std::vector<int> rows_per_call;  ///< rows of this sequence in each head call, level by level
    float score = 0;                 ///< of a text drafter: the drafts that it expects to be accepted
    std::string_view drafter = {};   ///< id of the drafter of a pair that drafted; "" = the only one
    bool own_length = false;         ///< drafted to a length of its own, whatever `tree` says

    /// Slots of the target that the state has to process before it drafts.
    int new_slots() const {
        return device_features != nullptr ? device_rows : std::max(new_hidden.rows, new_aux.rows);
    }
    /// Removes the new slots, which the state has processed.
    void forget_slots() {
        new_hidden = new_aux = {};
        device_features = nullptr;
        device_rows = 0;
    }
    /// Resets the job and keeps the memory of what the drafter fills in.
    void reset() {
        DraftJob next;
        next.out = std::move(out);
        next.rows_per_call = std::move(rows_per_call);
        next.candidates = std::move(candidates);
        next.candidates.clear();
        *this = std::move(next);
    }
};

/// What is fixed for a drafter.
struct DrafterProperties {
    bool uses_head = true;                     ///< drafts through DraftContext::head
    bool needs_hidden = false;                 ///< jobs must carry `new_hidden`
    std::vector<int> aux_layers = {};          ///< target layers whose inputs jobs must carry as `new_aux`
    const kernels::Matrix* lm_head = nullptr;  ///< that it was trained with; null = the target's
    /// Target id of each row of a trimmed `lm_head`, ascending; empty = row i is token i.
    std::span<const TokenId> lm_head_ids = {};
    std::size_t weight_bytes = 0;  ///< backbone weights read per level
    std::size_t cache_bytes = 0;   ///< of its keys and values, for each position of a text
    /// Weights that turn the target's hidden states into the drafter's inputs, read once per round.
    std::size_t feature_weight_bytes = 0;
    int max_levels = 0;          ///< of a drafter with one head per level; 0 = unlimited
    int positions = 0;           ///< that its own model has; 0 = unlimited
    int trained_positions = 0;   ///< positions of text that it was trained for; 0 = unknown
    bool nested_trees = true;    ///< of one top-k, a smaller tree is a part of a larger one
    bool order_matters = false;  ///< drafts depend on the texts before: they are decoded one by one, in order
    Notes notes = {};            ///< what was guessed or odd in its files
};

/// A drafting algorithm. Holds no sequences: their states come with the jobs. A step calls begin(), enqueue()
/// and, after its only wait, collect() and accepted().
class Drafter {
  public:
    virtual ~Drafter() = default;
    const DrafterProperties& properties() const { return properties_; }
    bool uses_head() const { return properties_.uses_head; }
    bool needs_hidden() const { return properties_.needs_hidden; }
    std::span<const int> aux_layers() const { return properties_.aux_layers; }
    /// Returns how many of `levels` levels it can draft after a text of `tokens` tokens; less than 1 = none.
    int limit_levels(int levels, int tokens) const {
        if (properties_.max_levels > 0) levels = std::min(levels, properties_.max_levels);
        // The row of a node at level l is at position tokens - 1 + l, and the last level has no rows.
        return properties_.positions > 0 ? std::min(levels, properties_.positions - tokens + 1) : levels;
    }

    /// Forgets the texts of earlier runs. Only a drafter whose `order_matters` keeps any.
    virtual void begin_run() {}
    /// Creates a state with capacity for `slots`: the longest text plus one tree
    /// (TreeSpec::drafting_nodes()). The state grows if it needs more. With `keeps_slots`, jobs may start at
    /// any slot that the state has processed before, with the same features and tokens, and share that work.
    virtual std::unique_ptr<DrafterState> make_state(int slots, bool keeps_slots = false) const = 0;
    /// Checks the jobs and makes room in their states. A drafter of the host drafts here, and its jobs are
    /// known.
    virtual Status begin(DraftContext& context, std::span<DraftJob> jobs) = 0;
    /// Enqueues the catch-up with the new slots and all drafting, and returns without waiting. The trees that
    /// are not known become rows of step.layout; trees of one node only catch up. A second call in a round
    /// without new slots drafts from the same states. The caller holds Backend::submit_mutex(). Some jobs of
    /// a step may be known and others not.
    virtual Status enqueue(DraftContext&, std::span<DraftJob>, RoundStep&) { return {}; }
    /// Reads the trees of the jobs that are not known, after the wait. Heads read what they chose on the
    /// backend.
    virtual Status collect(const RoundStep&, std::span<DraftJob>) { return {}; }
    /// Called when the target accepted `path` of the sequence's latest tree, root first.
    virtual void accepted(DrafterState&, std::span<const int> /*path*/) {}

  protected:
    explicit Drafter(DrafterProperties properties) : properties_(std::move(properties)) {}

  private:
    DrafterProperties properties_;
};

/// Drafts trees without a target's pass and waits for them: for replays, shadow heads and fits.
class DraftRunner {
  public:
    explicit DraftRunner(Drafter& drafter) : drafter_(drafter) {}
    const Drafter& drafter() const { return drafter_; }
    /// Lists the jobs' trees in `plan`, in their order, and sets DraftJob::tree_index.
    static void add_trees(const DraftContext& context, std::span<DraftJob> jobs, RoundPlan& plan);
    /// Uploads the roots of the jobs that only catch up: the drafter grows no trees of them.
    static Status upload_roots(std::span<const DraftJob> jobs, RoundStep& step);
    /// Catches up with the jobs' new slots, which the jobs then no longer have, and drafts a tree for each.
    Status draft(DraftContext& context, std::span<DraftJob> jobs);

  private:
    Drafter& drafter_;
    RoundStep step_;
};

/// Checks a tree against the drafter's maximum number of levels. A dynamic tree stops at that level; a deeper
/// static tree is an error, and so is a length by probabilities without any.
Status check_tree(const Drafter& drafter, const TreeSpec& tree);

/// `spec` is "NAME[:PATH[,key=value...]]".
Result<std::unique_ptr<Drafter>> make_drafter(std::string_view spec, const std::string& default_path,
                                              const Target& target, kernels::Backend& backend);

}  // namespace draftscope
