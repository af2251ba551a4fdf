#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/heads/head.h"
#include "engine/model/weight_source.h"

namespace draftscope {

/// A fixed draft vocabulary: the kept rows of an LM head in one matrix, and the way back to target ids.
/// Shared by the heads that only differ in how they choose the tokens.
class StaticVocab {
  public:
    /// Keeps the first `size` tokens of `ranking` (most frequent first; duplicates count once). Every
    /// always-active token is kept, at the cost of the last ones of the ranking. `head` names the head in
    /// messages. Fails when the ranking is too short or names a token that the target does not have.
    static Result<StaticVocab> make(kernels::Exec& exec, const HeadWeights& weights,
                                    const std::vector<TokenId>& ranking, int size, std::string_view head);

    int size() const { return static_cast<int>(ids_.size()); }
    const kernels::Matrix& rows() const { return rows_; }  ///< [size, d], row i = token ids()[i]
    /// Ascending, so that a tie between rows goes to the lower token id as it does in the full head.
    const std::vector<TokenId>& ids() const { return ids_; }
    bool has(TokenId token) const {
        return token >= 0 && token < static_cast<TokenId>(member_.size()) &&
               member_[static_cast<std::size_t>(token)];
    }

  private:
    std::vector<TokenId> ids_;
    std::vector<bool> member_;  ///< [V]
    kernels::Matrix rows_;
};

/// Does the LM head have a row for `id`? A drafter's trimmed head lacks most tokens.
bool head_holds(const HeadWeights& weights, TokenId id);
/// Rows of the LM head for tokens that it holds.
std::vector<TokenId> head_rows(const HeadWeights& weights, std::span<const TokenId> ids);
/// The same without a copy: `ids` themselves where row i is token i, else in `rows`.
std::span<const TokenId> head_rows(const HeadWeights& weights, std::span<const TokenId> ids,
                                   std::vector<TokenId>& rows);

/// A token ranking: a safetensors file, FR-Spec's freq_V.pt, or "synthetic:NAME". Missing file: bad_input.
Result<std::unique_ptr<WeightSource>> open_ranking(const std::string& path);
/// Its tensor `ids`, most frequent first; bad_input without it.
Result<std::vector<TokenId>> ranking_ids(const WeightSource& ranking, std::string_view head);
/// Both.
Result<std::vector<TokenId>> load_ranking(const std::string& path, std::string_view head);

}  // namespace draftscope
