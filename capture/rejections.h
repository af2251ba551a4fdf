#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/capture.h"

/// Why rounds ended where they did, added up over a run. The definitions are those of the SQL view
/// v_rejection.
namespace draftscope {

/// What ended a round's accepted path. The order is that of reports.
enum class RoundStop {
    outside_set,      ///< the target's token is not in the head's active set: it could not be drafted
    no_candidate,     ///< it could have been drafted, but is not among the drafter's first tokens there
    pruned,           ///< it was among them, but not kept in the tree
    other_drafted,    ///< one of the two above: the capture does not know which
    not_expanded,     ///< nothing was drafted after the last accepted node, or all of it was pruned and the
                      ///< capture does not know it, although the tree goes deeper
    all_accepted,     ///< the draft was accepted to the tree's depth: a longer one might have gone on
    nothing_drafted,  ///< the tree has only its root
    text_ended,       ///< EOS or the limit of new tokens cut the round
};
inline constexpr int round_stops = 8;
/// Returns "outside the active set"; the view has the same texts.
std::string_view to_text(RoundStop stop);
/// Returns whether tokens were drafted there and the target chose another one.
constexpr bool is_rejection(RoundStop stop) {
    return stop <= RoundStop::other_drafted;
}

/// The end of one round.
struct RoundEnding {
    std::size_t round = 0;  ///< index into Snapshot::rounds
    RoundStop stop = RoundStop::other_drafted;
    int depth = 0;                    ///< of the target's token in the tree, 1 = first draft
    TokenId token_id = no_token;      ///< the target's token there
    std::optional<float> token_prob;  ///< by the target
    std::optional<int> draft_rank;    ///< as NodeRow::target_draft_rank
};
/// Returns the ending of `rounds[round]`; absent if its tree, or the target's token after it, is not known.
std::optional<RoundEnding> round_ending(const Snapshot& snapshot, std::size_t round);
/// Returns the endings of a run's rounds in their order. Rounds whose tree is not known are left out. Of a
/// capture whose trees stay in its file, at most `max_stored` rounds are read; take the view for larger ones.
std::vector<RoundEnding> round_endings(const Snapshot& snapshot, RowId run_id,
                                       std::size_t max_stored = 20000);

/// Counts by stop of the rounds that share a label: a depth, a category, a position in the text.
struct StopCounts {
    std::string label;
    std::array<std::int64_t, round_stops> rounds{};
    std::int64_t all() const;
    double share(RoundStop stop) const {
        return all() == 0
                   ? 0
                   : static_cast<double>(rounds[static_cast<std::size_t>(stop)]) / static_cast<double>(all());
    }
};
/// A token that the target chose where other tokens were drafted, or none could be.
struct MissedToken {
    TokenId token_id = no_token;
    std::int64_t rounds = 0, outside_set = 0, pruned = 0;
    std::int64_t rank_sum = 0;    ///< of the drafter's ranks where it was pruned, 0 = first
    std::size_t first_round = 0;  ///< index into Snapshot::rounds of its first miss
};
/// A run's rejections.
struct RejectionSummary {
    StopCounts all;
    /// By depth of the target's token: rounds that stopped there. By the prompt's category. By the generated
    /// tokens before the round: "0", "64", "128", ...
    std::vector<StopCounts> by_depth, by_category, by_position;
    std::vector<MissedToken> missed;  ///< most often missed first
    std::size_t left_out = 0;         ///< rounds whose tree is not known or was not read
};
RejectionSummary summarise_rejections(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope
