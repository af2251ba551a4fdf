#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/draft/drafter.h"

namespace draftscope {

/// The outcome of one round of a head.
struct HeadRound {
    int prefix = 0;  ///< committed tokens before the round, including prompt and root
    int tree_nodes = 0, tree_depth = 0;
    int accepted = 0, committed = 0;
    int covered = 0;  ///< committed tokens that were in the head's active set at their depth
    bool clipped = false;
    std::optional<double> covered_mass;  ///< mean over the committed tokens' positions
    double active_rows = 0;              ///< mean per head call
    double row_tokens = 0;               ///< HeadEvalRow::row_tokens
    std::uint64_t bytes = 0;             ///< bytes that the head calls read
    double flops = 0;                    ///< of the head calls, two per weight and row
    std::string_view drafter = {};       ///< DraftJob::drafter
    bool operator==(const HeadRound&) const = default;
};

/// The known part of a text that a head drafts along.
struct ReferenceText {
    std::span<const TokenId> tokens;  ///< prompt and text
    int prompt_tokens = 0;
    bool ended = false;  ///< `tokens` is the complete text
    /// The target's k best tokens after token `row`, best first. Only called for heads with state.
    std::function<std::vector<TokenId>(int row, int k)> best;
    /// Target probability, after token `row`, of the head's active set at draft level `level`. Empty = not
    /// needed.
    std::function<double(int row, const ActiveSet& active, int level)> covered_prob;
};

/// The state of one head that follows a text with its own rounds and trees.
struct ReplayCursor {
    ReferenceText text;
    DrafterState* drafter = nullptr;
    std::unique_ptr<HeadState> head;
    DraftLengths lengths;
    int prefix = 0;  ///< committed tokens; the last one is the root of the next tree

    std::vector<TokenId> active_memory;  ///< for LmHead::active_set()
    std::optional<DraftJob> job;         ///< a drafted tree that the text has not yet decided
    bool done() const { return text.ended && !job && prefix >= static_cast<int>(text.tokens.size()); }
};

/// A head to replay. An oracle head receives the upcoming text before each round (engine/heads/oracle.h).
struct ReplayHead {
    LmHead* head = nullptr;  ///< null for drafters that use no head
    bool needs_future = false;
};

/// Drafts along a known text as a live session under exact-match verification would. A draft is accepted if
/// and only if it equals the text's token.
class ReplayRunner {
  public:
    /// `context` is the number of positions of the target, `vocab` the number of real token ids.
    ReplayRunner(Drafter& drafter, ReplayHead head, kernels::Backend& backend, PhaseRecorder& phases,
                 const TreeSpec& tree, int context, int vocab)
        : drafting_(drafter),
          head_(head.head),
          needs_future_(head.needs_future),
          backend_(backend),
          phases_(phases),
          tree_(tree),
          context_(context),
          vocab_(vocab) {}

    /// Makes the drafts fill in DraftJob::candidates, which are valid until the next draft().
    void keep_candidates() { keeps_candidates_ = true; }
    /// Makes draft() draft once more, without new features, and record the phases of that; null = does not.
    void measure(PhaseRecorder* phases) { measured_ = phases; }
    /// Creates the head's state and sets the first root. The text's first token must be known.
    void begin(ReplayCursor& cursor) const;
    /// Sets the target's features of the slots that lane `index` of the call has not processed.
    using Features = FunctionRef<Status(std::size_t index, DraftJob& job)>;
    /// Processes the new features and drafts a tree for each lane, in the order of a live step. A lane
    /// without room for a tree is skipped, without a call of `features`.
    Status draft(std::span<ReplayCursor* const> cursors, Features features);
    /// Evaluates the lane's tree; nullopt if the text does not decide it yet. Afterwards the lane is at its
    /// next root, and its head has observed the outcome.
    std::optional<HeadRound> evaluate(ReplayCursor& cursor) const;

    /// Returns an error if `head` cannot be replayed along a text with `known` best tokens per position.
    static Status check(const LmHead& head, int known);

  private:
    void load_future(ReplayCursor& cursor) const;

    DraftRunner drafting_;
    LmHead* head_;
    bool needs_future_;
    kernels::Backend& backend_;
    PhaseRecorder& phases_;
    TreeSpec tree_;
    int context_;
    int vocab_;
    bool keeps_candidates_ = false;
    PhaseRecorder* measured_ = nullptr;
};

}  // namespace draftscope
