#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/replay/replay.h"

namespace draftscope {

/// What a head would have drafted at one position of a text, for all trees of one top-k at once. The position
/// is known by the number of committed tokens before the round.
struct PositionRanks {
    int levels = 0;  ///< levels that fit into the context here
    /// [limit]: the number of candidates above level `limit` + 1. A tree has at most one node more, its root.
    std::vector<std::uint16_t> candidates;
    /// [limit][i]: the rank, from 1, of the candidate that equals token i of the text to come. It is the rank
    /// among the candidates of the first `limit` + 1 levels. A tree of n nodes contains those with ranks
    /// below n.
    std::vector<std::vector<std::uint16_t>> ranks;
    std::vector<float> logprobs;  ///< [level] of a chain's drafts; empty for other trees
};

/// Ranks at every position of one text.
struct PathRanks {
    int first_prefix = 0;  ///< committed tokens before the first round, including prompt and root
    int tokens = 0;        ///< of prompt and text
    bool cut = false;      ///< the text was cancelled: its last round does not count if it is clipped
    std::vector<PositionRanks> positions;
};

/// Returns whether ranks serve all trees: what is drafted must depend neither on earlier rounds nor on the
/// tree's size.
bool has_path_ranks(const Drafter& drafter, const LmHead* head);

/// Returns the ranks of one drafted tree whose root is followed by `text`. The tree has all candidates, level
/// by level.
PositionRanks rank_path(const DraftTree& tree, std::span<const TokenId> text, int levels);

/// Drafts at every position of the recording with the largest tree that `options.tree` allows, whose `nodes`
/// are ignored: ranks[prompt]. One pass replaces the replays of all trees with this top-k and up to this
/// depth. Both satisfy has_path_ranks().
Result<std::vector<PathRanks>> path_ranks(const DecodeRecording& recording, const Target& target,
                                          Drafter& drafter, ReplayHead head, kernels::Backend& backend,
                                          const ReplayOptions& options);

/// Returns how many tokens of the text to come a tree of these ranks holds.
int accepted_at(const PositionRanks& at, const TreeSpec& tree);

/// Returns the rounds that a replay of this text with `tree` has, whose length may be adaptive. The tree's
/// top-k is that of the ranks, its depth at most theirs. The rounds lack coverage and costs.
std::vector<HeadRound> rounds_of_tree(const PathRanks& text, const TreeSpec& tree);

}  // namespace draftscope
