#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/draft/drafter.h"
#include "engine/model/device_logits.h"
#include "engine/session/active_sets.h"
#include "engine/verify/verify.h"

/// Rows of a round for the capture, from what the decode loop knows of it.
namespace draftscope {

/// Of the accepted path's nodes, this many of the target's best tokens are kept.
inline constexpr int top_tokens = 5;

struct RoundFacts {
    const DraftTree& tree;
    std::span<const TargetChoice> choices;  ///< per node
    std::span<const int> path;              ///< accepted nodes, root first, as verified (before clipping)
    std::span<const TokenId> emitted;       ///< what was committed, after clipping
    Rows<const float> logits;               ///< [nodes, vocab]; empty with `there`
    const Sampling& sampling;
    /// With `there` the rows stayed on a device: its answers to JudgedRows::ask() of all rows of the step, of
    /// which this tree's begin at `first_row`.
    const RowAnswers* there = nullptr;
    int first_row = 0;
};

/// Memory for what lies between rows and logits, kept from round to round.
struct RowScratch {
    /// Larger trees make it grow.
    explicit RowScratch(int tree_nodes = 0) {
        const auto most = static_cast<std::size_t>(tree_nodes);
        nodes.reserve(most);
        rows.reserve(most);
        columns.reserve(most);
        ranks.reserve(most);
    }
    std::vector<float> logits;
    std::vector<std::size_t> nodes;  ///< whose rank is asked for, with
    std::vector<std::int32_t> rows, columns, ranks;
};

/// Nodes as drafted, without the target's view (a round in flight).
std::vector<NodeRow> draft_rows(const DraftTree& tree);
/// Nodes with the target's probabilities and choices. Accepted = on the path to a committed token, the root
/// included. `best` holds the target's best tokens at the path's nodes, [path, any number], best first;
/// children that are not among them cost a pass over their parent's logits.
std::vector<NodeRow> node_rows(kernels::Exec& exec, const RoundFacts& facts, const ActiveSets& active,
                               std::span<const TokenId> best, RowScratch& scratch);
/// The target's k best tokens at the path's nodes; `best` is [path, >= k], best first.
std::vector<NodeTopRow> top_rows(const RoundFacts& facts, std::span<const TokenId> best, int k);
/// `ids` become those of the k best tokens of each of `nodes`, [nodes, k].
/// k is at most what was asked for where the rows stayed on a device.
void best_of_nodes(kernels::Exec& exec, const RoundFacts& facts, std::span<const int> nodes, int k,
                   RowScratch& scratch, std::vector<TokenId>& ids);

/// The target's best tokens at each prompt position, best first.
struct PromptBest {
    std::vector<TokenId> ids;  ///< [prompt, k]
    int k = 0;
    std::uint64_t bytes = 0;  ///< weights read for them
    Rows<const TokenId> rows() const {
        return {ids.data(), k == 0 ? 0 : static_cast<int>(ids.size()) / k, k};
    }
};
/// From the hidden states of a prefill; k = 0 costs nothing. A prefill itself has logits of its last row
/// only.
PromptBest best_of_prompt(kernels::Exec& exec, const kernels::Matrix& lm_head, const ForwardOutput& prefill,
                          int vocab, int k);

/// The committed tokens; `first_position` counts generated tokens before them.
std::vector<TokenRow> token_rows(const RoundFacts& facts, const ActiveSets& active, RowId prompt_id,
                                 int first_position, const std::vector<std::optional<int>>* ranks);
/// Cost side of a head's row: rows and bytes of the calls that drafted `jobs[index]`. What a head without
/// state reads in a call serves every job in it, and each has its part. Outcome and time are left 0.
HeadEvalRow head_row(const Head& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode);
/// Mean over the nodes that committed a token. Where the rows stayed on a device, the question asked for it.
double covered_mass(const kernels::Exec& exec, const RoundFacts& facts, ActiveSets& active);
std::optional<int> frequency_rank(const std::vector<std::optional<int>>* ranks, TokenId token);

}  // namespace draftscope
