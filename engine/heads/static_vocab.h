#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/formats/weight_source.h"
#include "engine/heads/head.h"

namespace draftscope {

/// A fixed draft vocabulary: the kept rows of an LM head in one matrix, with their target ids. Heads that use
/// it only differ in how they choose the tokens.
class StaticVocab {
  public:
    /// Keeps the first `size` tokens of `ranking` (most frequent first; duplicates count once). Always-active
    /// tokens are kept in place of the last ones of the ranking. `head` names the head in messages. Fails if
    /// the ranking is too short or contains a token outside the target's vocabulary.
    static Result<StaticVocab> make(kernels::Backend& backend, const HeadWeights& weights,
                                    const std::vector<TokenId>& ranking, int size, std::string_view head);

    int size() const { return static_cast<int>(ids_.size()); }
    const kernels::Matrix& rows() const { return rows_; }  ///< [size, d], row i = token ids()[i]
    /// Ascending, so that ties between rows go to the lower token id as in the full head.
    const std::vector<TokenId>& ids() const { return ids_; }

  private:
    std::vector<TokenId> ids_;
    kernels::Matrix rows_;
};

/// Returns whether the LM head has a row for `id`; a drafter's trimmed LM head lacks most tokens.
bool lm_head_has(const HeadWeights& weights, TokenId id);
/// Returns the number of tokens that the LM head has rows for; further rows are padding.
int num_lm_head_tokens(const HeadWeights& weights);
/// Returns the tokens that the LM head has rows for.
ActiveSet tokens_of_lm_head(const HeadWeights& weights);
/// Returns the LM head's rows of tokens that it has.
std::vector<TokenId> lm_head_row_indices(const HeadWeights& weights, std::span<const TokenId> ids);
/// Same as lm_head_row_indices() without a copy: returns `ids` if row i is token i, else fills `rows`.
std::span<const TokenId> lm_head_row_indices(const HeadWeights& weights, std::span<const TokenId> ids,
                                             std::vector<TokenId>& rows);

/// Opens a token ranking: a safetensors file, FR-Spec's freq_V.pt, or "synthetic:NAME". A missing file is
/// bad_input.
Result<std::unique_ptr<WeightSource>> open_ranking(const std::string& path);
/// Returns the ranking's tensor `ids`, most frequent first; bad_input if missing.
Result<std::vector<TokenId>> ranking_ids(const WeightSource& ranking, std::string_view head);
/// Opens the ranking at `path` and returns its ids.
Result<std::vector<TokenId>> load_ranking(const std::string& path, std::string_view head);

}  // namespace draftscope
