#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/draft/drafter.h"

namespace draftscope {

/// What one round of a head came to.
struct HeadRound {
    int prefix = 0;  ///< committed tokens before it, prompt and root included
    int tree_nodes = 0, tree_depth = 0;
    int accepted = 0, committed = 0;
    int covered = 0;  ///< of the committed tokens, those in the head's active set at their depth
    bool clipped = false;
    std::optional<double> covered_mass;  ///< mean over the committed tokens' positions
    double active_rows = 0;              ///< mean per head call
    std::uint64_t bytes = 0;             ///< that the head calls read
    bool operator==(const HeadRound&) const = default;
};

/// A text that a head drafts along, as far as it is known.
struct FollowedText {
    std::span<const TokenId> tokens;  ///< prompt and text
    int prompt_tokens = 0;
    bool ended = false;  ///< nothing follows
    /// Ids of the target's k best tokens to follow token `row`, best first. Only asked by heads with state.
    std::function<std::vector<TokenId>(int row, int k)> best;
    /// Mass of the target's distribution after token `row` on the head's active set at draft level `level`;
    /// empty = not wanted.
    std::function<double(int row, const Head& head, const HeadState* state, int level)> mass;
};

/// A head on its own way along a text: rounds, tree and state of its own.
struct FollowLane {
    FollowedText text;
    DrafterState* drafter = nullptr;
    std::unique_ptr<HeadState> head;
    int prefix = 0;  ///< committed tokens; the last one is the root of the next tree

    std::optional<DraftJob> drafted;  ///< a tree that waits for the text to judge it
    bool done() const { return text.ended && !drafted && prefix >= static_cast<int>(text.tokens.size()); }
};

/// A head to be followed. `foresees`: before each round it is told what the text holds
/// (engine/heads/oracle.h).
struct FollowedHead {
    Head* head = nullptr;  ///< null for drafters without one
    bool foresees = false;
};

/// Drafts along known text as a live session under exact-match verification would: a draft is kept if and
/// only if it is the token that the text has there.
class Follower {
  public:
    /// `context`: positions of the target. `vocab`: real ids.
    Follower(Drafter& drafter, FollowedHead head, kernels::Exec& exec, PhaseRecorder& phases,
             const TreeSpec& tree, int context, int vocab)
        : drafter_(drafter),
          head_(head.head),
          foresees_(head.foresees),
          exec_(exec),
          phases_(phases),
          tree_(tree),
          context_(context),
          vocab_(vocab) {}

    /// The text's first token is known: state of the head, first root.
    void begin(FollowLane& lane) const;
    /// Sets the target's features of the slots that lane `index` of the call has not taken in yet.
    using Features = FunctionRef<Status(std::size_t index, DraftJob& job)>;
    /// Catches the drafter up and drafts a tree for each lane, all in lockstep and in the order of a live
    /// step. A lane whose tree has no room takes nothing in: `features` is not asked for it.
    Status draft(std::span<FollowLane* const> lanes, Features features) const;
    /// What the text says about the lane's tree; nothing as long as it does not decide. The lane is then at
    /// its next root, and its head has seen the outcome.
    std::optional<HeadRound> judge(FollowLane& lane) const;

    /// Why a head cannot be followed along a text that knows `known` best tokens per position, as an error.
    static Status check(const Head& head, int known);

  private:
    void look_ahead(FollowLane& lane) const;

    Drafter& drafter_;
    Head* head_;
    bool foresees_;
    kernels::Exec& exec_;
    PhaseRecorder& phases_;
    TreeSpec tree_;
    int context_;
    int vocab_;
};

}  // namespace draftscope
