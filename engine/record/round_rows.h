#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/decode/draft_vocab.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/device_logits.h"
#include "engine/verify/verify.h"

/// Converts the outcome of a round to rows of the capture.
namespace draftscope {

/// The target's best tokens recorded for each node of the accepted path.
inline constexpr int num_top_tokens = 5;

/// The outcome of one round as the decode loop knows it.
struct RoundOutcome {
    const DraftTree& tree;
    std::span<const TargetSample> choices;  ///< per node
    std::span<const int> path;              ///< accepted nodes, root first, as verified (before clipping)
    std::span<const TokenId> emitted;       ///< committed tokens, after clipping
    Rows<const float> logits;               ///< [nodes, vocab]; empty if `there` is set
    const Sampling& sampling;
    /// If set, the logits stayed on a device. `there` has the answers for all rows of the step, from
    /// `first_row` on for this tree.
    const LogitsResult* device_result = nullptr;
    int first_row = 0;
};

/// Scratch memory, kept from round to round.
struct RowScratch {
    /// Larger trees reallocate.
    explicit RowScratch(int tree_nodes = 0) {
        const std::size_t max_nodes = tree_nodes;
        nodes.reserve(max_nodes);
        rows.reserve(max_nodes);
        columns.reserve(max_nodes);
        ranks.reserve(max_nodes);
    }
    std::vector<float> logits;
    std::vector<std::size_t> nodes;  ///< nodes whose rank is needed, with
    std::vector<std::int32_t> rows, columns, ranks;
};

/// Nodes as drafted, without the target's results.
std::vector<NodeRow> draft_rows(const DraftTree& tree);
/// Nodes with the target's probabilities and choices. The nodes on the path to a committed token are
/// accepted, including the root. `best` has the target's best tokens at the path's nodes, [path, any number],
/// best first. Children outside `best` cost one pass over their parent's logits.
std::vector<NodeRow> node_rows(kernels::Exec& exec, const RoundOutcome& outcome, const DraftVocab& active,
                               std::span<const TokenId> best, RowScratch& scratch);
/// The target's k best tokens at the path's nodes; `best` is [path, >= k], best first.
std::vector<NodeTopRow> top_rows(const RoundOutcome& outcome, std::span<const TokenId> best, int k);
/// Sets `ids` to the k best tokens of each of `nodes`, [nodes, k]. For logits on a device, k is at most what
/// was requested before the forward pass.
void find_top_tokens(kernels::Exec& exec, const RoundOutcome& outcome, std::span<const int> nodes, int k,
                     RowScratch& scratch, std::vector<TokenId>& ids);

/// The target's best tokens at each prompt position, best first.
struct PromptTopTokens {
    std::vector<TokenId> ids;  ///< [prompt, k]
    int k = 0;
    std::uint64_t bytes = 0;  ///< weight bytes read to compute them
    Rows<const TokenId> rows() const {
        return {ids.data(), k == 0 ? 0 : static_cast<int>(ids.size()) / k, k};
    }
};
/// Computes them from the hidden states of a prefill, which has only the last row's logits. k = 0 computes
/// nothing.
PromptTopTokens find_prompt_top_tokens(kernels::Exec& exec, const kernels::Matrix& lm_head,
                                       const ForwardOutput& prefill, int vocab, int k);

/// Rows of the committed tokens. `first_position` is the number of generated tokens before them.
std::vector<TokenRow> token_rows(const RoundOutcome& outcome, const DraftVocab& active, RowId prompt_id,
                                 int first_position, const std::vector<std::optional<int>>* ranks);
/// Fills in the cost columns of a head's row: rows and bytes of the calls that drafted `jobs[index]`. The
/// bytes of a call of a head without state are divided among its jobs. Outcome and time are left 0.
HeadEvalRow head_row(const LmHead& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode);
/// Mean over the nodes that committed a token. For logits on a device, it must have been requested before the
/// forward pass.
double covered_mass(const kernels::Exec& exec, const RoundOutcome& outcome, DraftVocab& active);
std::optional<int> frequency_rank(const std::vector<std::optional<int>>* ranks, TokenId token);

}  // namespace draftscope
