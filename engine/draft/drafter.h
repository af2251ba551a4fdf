#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/notes.h"
#include "base/phase.h"
#include "base/result.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/head.h"
#include "engine/transformer/target.h"
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
    kernels::Backend& backend;
    PhaseRecorder& phases;
    LmHead* head = nullptr;  ///< null for drafters that use no head
    TreeSpec tree;
    LevelObserver* observer = nullptr;
    const DraftSampling* sampled =
        nullptr;                  ///< sample drafts from the head's distribution; null = take its best tokens
    bool coverage_wanted = true;  ///< whether this step reports what the head covered
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
    TreeSpec tree;       ///< context.tree, clipped near the context limit
    int tree_index = 0;  ///< of its tree in the TreeStep
    // Filled by expand() or collect_draft():
    DraftTree out;
    std::vector<int> rows_per_call;  ///< rows of this sequence in each head call, level by level

    /// Resets the job and keeps the memory of what expand() fills in.
    void reset() {
        DraftJob fresh;
        fresh.out = std::move(out);
        fresh.rows_per_call = std::move(rows_per_call);
        *this = std::move(fresh);
    }
};

/// A drafting algorithm. Holds no sequences: their states come with the jobs.
class Drafter {
  public:
    virtual ~Drafter() = default;
    /// Returns whether it drafts through DraftContext::head.
    virtual bool uses_head() const = 0;
    /// Returns whether jobs must carry `new_hidden`.
    virtual bool needs_hidden() const = 0;
    /// Target layers whose inputs jobs must carry as `new_aux`; empty = none.
    virtual std::span<const int> aux_layers() const { return {}; }
    /// Creates a state with capacity for `slots`: the longest text plus one tree
    /// (TreeSpec::drafting_nodes()). The state grows if it needs more.
    virtual std::unique_ptr<DrafterState> make_state(int slots) const = 0;
    /// Makes the state keep its inputs, so that rewind() works. Call it before the first extend_cache().
    /// Returns whether the drafter supports it.
    virtual bool enable_rewind(DrafterState&) const { return false; }
    /// Resets the state to zero slots. The next extend_cache() reuses the cached results of slots processed
    /// before, whose features and tokens must be unchanged. Several heads that draft for one text share the
    /// work this way.
    virtual void rewind(DrafterState&) const {}
    /// Extends the state by the verified slots (catch-up, phase backbone level 0). Call it once per round,
    /// before expand().
    virtual Status extend_cache(DraftContext& context, std::span<DraftJob> jobs) = 0;
    /// Drafts one tree per job. Does not change the committed state: another head may draft in the same
    /// round.
    virtual Status expand(DraftContext& context, std::span<DraftJob> jobs) = 0;
    /// Returns whether its trees grow on the backend that runs the target. Then check_draft() and
    /// enqueue_draft() replace extend_cache() and expand() in a round; else `out` is uploaded.
    virtual bool grows_trees() const { return false; }
    /// Checks these jobs before the device is locked, and makes room in their caches.
    virtual Status check_draft(const DraftContext&, std::span<const DraftJob>) { return {}; }
    /// Enqueues all drafting of a round and returns without waiting. The trees become rows of `step`. The
    /// caller holds Backend::submit_mutex().
    virtual Status enqueue_draft(DraftContext&, std::span<DraftJob>, TreeStep&, DeviceSpans&) {
        return failed("this drafter grows no trees");
    }
    /// Called after the wait that follows enqueue_draft() and TreeStep::enqueue_download(). Heads read what
    /// they chose on the device, and the jobs get their trees.
    virtual Status collect_draft(const TreeStep&, std::span<DraftJob>) { return {}; }
    /// The LM head that this drafter was trained with; null = the target's.
    virtual const kernels::Matrix* own_lm_head() const { return nullptr; }
    /// Target id of each row of a trimmed own_lm_head(), ascending; empty = row i is token i.
    virtual std::span<const TokenId> own_lm_head_ids() const { return {}; }
    virtual std::size_t weight_bytes() const = 0;  ///< backbone weights read per level
    /// Weights that turn the target's hidden states into the drafter's inputs, read once per round.
    virtual std::size_t feature_weight_bytes() const { return 0; }
    /// Maximum draft levels of a drafter with one head per level; 0 = unlimited.
    virtual int max_levels() const { return 0; }
    /// Positions of text that it was trained for; 0 = unknown.
    virtual int trained_positions() const { return 0; }
    /// What was guessed or odd in the drafter's files.
    const Notes& notes() const { return notes_; }

  protected:
    Notes notes_;
};
/// Checks a tree against the drafter's maximum number of levels. A dynamic tree stops at that level; a deeper
/// static tree is an error.
Status check_tree(const Drafter& drafter, const TreeSpec& tree);

/// `spec` is "NAME[:PATH[,key=value...]]".
Result<std::unique_ptr<Drafter>> make_drafter(std::string_view spec, const std::string& default_path,
                                              const Target& target, kernels::Backend& backend);

}  // namespace draftscope
