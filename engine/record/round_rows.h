#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/decode/draft_vocab.h"
#include "engine/draft/drafter.h"
#include "engine/verify/target_logits.h"
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
    const Sampling& sampling;
    const LogitsResult& answers;  ///< about the whole step
    int first_row = 0;            ///< row of the root in `answers`
    int index = 0;                ///< of the tree in `answers`
};

/// Sets the ids of run, step and round in all rows of a round.
void set_ids(RoundRecord& record, RowId run, RowId step, RowId round);
/// Nodes as drafted, without the target's results.
std::vector<NodeRow> draft_rows(const DraftTree& tree);
/// Nodes with the target's probabilities and choices. The nodes on the path to a committed token are
/// accepted, including the root. The step's query must request the drafts and their ranks.
std::vector<NodeRow> node_rows(const RoundOutcome& outcome, DraftVocab& active);
/// The target's k best tokens at the path's nodes, best first; k is at most what the query requests.
std::vector<NodeTopRow> top_rows(const RoundOutcome& outcome, int k);
/// Sets `ids`, [nodes, k], to the k best tokens of each node. k is at most what the query requests.
void find_top_tokens(const RoundOutcome& outcome, std::span<const int> nodes, int k,
                     std::vector<TokenId>& ids);

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
PromptTopTokens find_prompt_top_tokens(kernels::Backend& backend, const kernels::Matrix& lm_head,
                                       const ForwardOutput& prefill, int vocab, int k);

/// Rows of the committed tokens. `first_position` is the number of generated tokens before them.
std::vector<TokenRow> token_rows(const RoundOutcome& outcome, DraftVocab& active, RowId prompt_id,
                                 int first_position, const std::vector<std::optional<int>>* ranks);
/// Fills in the cost columns of a head's row: rows and bytes of the calls that drafted `jobs[index]`. The
/// bytes of a call of a head without state are divided among its jobs. Outcome and time are left 0.
HeadEvalRow head_row(const LmHead& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode);
/// Mean over the nodes that committed a token. The step's query must request the sets.
double covered_mass(const RoundOutcome& outcome, DraftVocab& active);
std::optional<int> frequency_rank(const std::vector<std::optional<int>>* ranks, TokenId token);

}  // namespace draftscope
