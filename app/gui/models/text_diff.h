#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/capture.h"

/// Compares the outputs of two runs over the same prompts. Finds the round at a place of a text.
namespace draftscope {

/// The outputs of two runs for one prompt.
struct PromptDiff {
    RowId prompt_a = 0, prompt_b = 0;
    std::vector<TokenId> tokens_a, tokens_b;
    std::optional<int> first;  ///< position of the first token that differs; absent if the outputs agree
};
struct RunDiff {
    std::vector<PromptDiff> prompts;  ///< those that both runs have, in the order of A
    std::string headline;             ///< "the outputs of 2 of 8 prompts differ"
};
/// Pairs the prompts as compare_runs() does.
RunDiff diff_runs(const Snapshot& a, RowId run_a, const Snapshot& b, RowId run_b);

/// Returns where a round's first token is among the generated tokens; absent without token ids.
std::optional<int> first_position(const Snapshot& snapshot, RowId round_id);
/// Returns the round that committed the token at a position; of a token from prefill the prompt's first
/// round. Absent if the text ends before.
std::optional<std::size_t> round_at_position(const Snapshot& snapshot, RowId prompt_id, int position);

enum class DiffSide { both, only_a, only_b };
/// A token of a diff; `index` is its place in A, or in B if only B has it.
struct DiffToken {
    DiffSide side = DiffSide::both;
    std::size_t index = 0;
    bool operator==(const DiffToken&) const = default;
};
/// Returns the shortest change from A to B, in each place first the tokens of A. A very long changed part is
/// not searched: all tokens of A, then all of B.
std::vector<DiffToken> diff_tokens(std::span<const TokenId> a, std::span<const TokenId> b);

/// Consecutive tokens of one side. Changed ones have marks: "[-of A-]", "{+of B+}".
struct DiffGroup {
    DiffSide side = DiffSide::both;
    std::string text;
    int position_a = 0, position_b = 0;  ///< where it begins in both outputs
};
std::vector<DiffGroup> diff_texts(const Snapshot& a, const Snapshot& b, const PromptDiff& prompt);

}  // namespace draftscope
