#pragma once

#include <string>
#include <vector>

#include "capture/record.h"
#include "engine/draft/drafter.h"

/// Converts the outcome of a round to rows of the capture.
namespace draftscope {

struct DecodeContext;
struct Round;

/// The target's best tokens recorded for each node of the accepted path.
inline constexpr int num_top_tokens = 5;

/// Nodes as drafted, without the target's results.
std::vector<NodeRow> draft_rows(const DraftTree& tree);
/// Nodes with the target's probabilities and choices. The nodes on the path to a committed token are
/// accepted, including the root. The step's query must request the drafts and their ranks.
std::vector<NodeRow> node_rows(const DecodeContext& core, const Round& round);
/// The target's k best tokens at the path's nodes, best first; k is at most what the query requests.
std::vector<NodeTopRow> top_rows(const DecodeContext& core, const Round& round, int k);
/// Sets `ids`, [nodes, k], to the k best tokens of each node. k is at most what the query requests.
void find_top_tokens(const DecodeContext& core, const Round& round, std::span<const int> nodes, int k,
                     std::vector<TokenId>& ids);

/// The target's best tokens at each prompt position, best first.
struct PromptTopTokens {
    std::vector<TokenId> ids;  ///< [prompt, k]
    std::uint64_t bytes = 0;   ///< weight bytes read to compute them
};
/// Computes them from the hidden states of the latest prefill, which has only the last row's logits. k = 0
/// computes nothing.
PromptTopTokens find_prompt_top_tokens(const DecodeContext& core, int k);

/// Rows of the committed tokens, before they are appended to the sequence.
std::vector<TokenRow> token_rows(const DecodeContext& core, const Round& round);
/// Fills in the cost columns of a head's row: rows and bytes of the calls that drafted `jobs[index]`. The
/// bytes of a call of a head without state are divided among its jobs. Outcome and time are left 0.
HeadEvalRow head_row(const LmHead& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode);
/// Mean over the nodes that committed a token. The step's query must request the sets.
double covered_mass(const DecodeContext& core, const Round& round);

}  // namespace draftscope
