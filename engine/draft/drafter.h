#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/heads/device_spans.h"
#include "engine/heads/head.h"
#include "engine/model/target.h"
#include "engine/tree/draft_tree.h"
#include "profiler/phase.h"

/// Drafters. One file per drafter, one row in the registry table.
namespace draftscope {

/// Lets a watcher see, and hold, a round between levels.
class LevelWatcher {
  public:
    virtual ~LevelWatcher() = default;
    /// Does anybody want to see, or hold, the levels of this step one by one?
    virtual bool watching() const { return true; }
    /// After each level's candidates are in; may block (step level). `partial` is only built when asked for.
    virtual void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) = 0;
};

struct DraftContext {
    kernels::Exec& exec;
    PhaseRecorder& phases;
    Head* head = nullptr;  ///< null for drafters without one
    TreeSpec tree;
    LevelWatcher* watcher = nullptr;
    const SampledDrafts* sampled =
        nullptr;                  ///< draw the drafts from the head's distribution; null = its best
    bool coverage_wanted = true;  ///< will anybody ask what the head covered in this step?
};

/// Per-sequence state (the drafter's own KV cache, suffix index, ...).
class DrafterState {
  public:
    virtual ~DrafterState() = default;
};

/// One sequence of a round. `tokens` = every committed token; the last one is the root of the tree to draft
/// and has no target KV yet. new_hidden/new_aux are the target's features of the slots verified since the
/// last call, in order (all prompt slots on the first call), rounded to bf16.
struct DraftJob {
    int sequence = 0;  ///< ordinal in the run: keys the random numbers of drawn drafts
    std::span<const TokenId> tokens;
    Rows<const float> new_hidden;  ///< [new, d]
    Rows<const float> new_aux;     ///< [new, 3d] or empty
    /// The same where they stayed on the target's device, in place of both; draft_there() alone reads them.
    const float* new_there = nullptr;
    int new_rows_there = 0;
    DrafterState* state = nullptr;
    HeadState* head_state = nullptr;
    TreeSpec tree;  ///< context.tree, clipped near the context limit
    DraftTree out;  ///< filled by expand()
    std::vector<int>
        head_rows;  ///< rows of this sequence in each head call, level by level; filled by expand()

    /// A new job, in the memory of what expand() filled in the one before.
    void reset() {
        DraftJob fresh;
        fresh.out = std::move(out);
        fresh.head_rows = std::move(head_rows);
        *this = std::move(fresh);
    }
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    virtual bool uses_head() const = 0;
    virtual bool needs_hidden() const = 0;
    virtual std::span<const int> aux_layers() const { return {}; }
    /// With room for `slots`: those of the longest text, and behind them a tree's
    /// (TreeSpec::drafting_nodes()). More than that makes the state grow.
    virtual std::unique_ptr<DrafterState> make_state(int slots) const = 0;
    /// Asked of a state before its first catch_up: whether it keeps what it takes in, so that rewind() works.
    virtual bool keep_slots(DrafterState&) const { return false; }
    /// The state stands at no slots again. Catching up over slots that it has taken in before, which must
    /// bring the same features and tokens, then costs nothing: heads of one text share that work.
    virtual void rewind(DrafterState&) const {}
    /// Takes in the verified slots (catch-up, phase backbone level 0). Once per round, before expand().
    virtual Status catch_up(DraftContext& context, std::span<DraftJob> jobs) = 0;
    /// Drafts a tree per job. Leaves the stable state as catch_up left it, so it can be called again with
    /// another head in the same round.
    virtual Status expand(DraftContext& context, std::span<DraftJob> jobs) = 0;
    /// Can draft_there() do for these jobs, in place of catch_up() and expand()? Makes room for them.
    virtual bool fits_there(const DraftContext&, std::span<const DraftJob>) { return false; }
    /// Asks a device for all of a round's drafting, and waits for nothing: the trees, one per job, become
    /// rows of `step`, and `out` stays empty. The caller holds Device::busy().
    virtual Status draft_there(DraftContext&, std::span<DraftJob>, TreeStep&, DeviceSpans&) {
        return failed("this drafter does not draft on a device alone");
    }
    /// After the wait that follows: heads learn what they decided there.
    virtual void drafted_there() {}
    /// The head matrix this drafter was trained with; null = the target's.
    virtual const kernels::Matrix* own_head() const { return nullptr; }
    /// Target id of each row of a trimmed own head, rising; empty = row i is token i.
    virtual std::span<const TokenId> own_head_ids() const { return {}; }
    virtual std::size_t weight_bytes() const = 0;  ///< backbone weights read per level
    /// Levels it has heads for; 0 = as many as asked.
    virtual int most_levels() const { return 0; }
};
/// A tree grown by score ends where the drafter's heads do; one fixed in advance must not be deeper than they
/// are.
Status check_tree(const Drafter& drafter, const TreeSpec& tree);

struct DrafterInfo {
    std::string_view id;
    std::string_view name;
    std::string_view paper;
    bool needs_weights = false;
    std::string_view help;
    /// `path`: folder or file of the checkpoint, "" for the ones without.
    Result<std::unique_ptr<Drafter>> (*make)(const std::string& path, const Target& target,
                                             kernels::Exec& exec) = nullptr;
};
std::span<const DrafterInfo> drafter_registry();
const DrafterInfo* find_drafter(std::string_view id);
/// `spec` is "NAME" or "NAME:PATH".
Result<std::unique_ptr<Drafter>> make_drafter(std::string_view spec, const std::string& default_path,
                                              const Target& target, kernels::Exec& exec);

}  // namespace draftscope
