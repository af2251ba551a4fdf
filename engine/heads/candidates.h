#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/heads/head.h"
#include "kernels/matmul_topk.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {

/// Returns a [rows, columns] view of `memory`. Memory grows with a reserve, so that a growing shortlist does
/// not reallocate each round.
Rows<float> as_matrix(std::vector<float>& memory, int rows, int columns);

/// Selects candidates from dense draft logits [rows, columns >= support]: logsumexp and top-k over the first
/// `support` columns. Ids are column numbers. Records phase topk with its child softmax.
void select_candidates(ProposeContext& context, Rows<const float> logits, int support, int k, Proposal& out);

/// Proposes from the first `support` outputs of a matrix; the result equals select_candidates() of the
/// product. If no draft is sampled and it pays off, one fused pass avoids writing the logits. Ids are row
/// numbers. Records phases head and topk with its child softmax. Passes the logits of sampled drafts to
/// store_support_logits() with `ids`.
class LinearProposer {
  public:
    void propose(ProposeContext& context, const kernels::Matrix& rows, const float* bias, int support,
                 std::span<const TokenId> ids, Rows<const float> hidden, int k, std::uint64_t bytes,
                 Proposal& out);

  private:
    kernels::PartialTopK partials_;
    std::vector<float> logits_;
};

/// Appends the logits of the first `support` columns to context.support if drafts are sampled. Column i is
/// token ids[i], or i if `ids` is empty.
void store_support_logits(ProposeContext& context, Rows<const float> logits, int support,
                          std::span<const TokenId> ids);

/// Proposes from `rows`, whose row i is the head's row of token ids[i]. Ascending ids break ties toward the
/// lower token, as in the full head. Records phases head, topk and gather with its child remap.
void propose_rows(ProposeContext& context, const kernels::Matrix& rows, std::span<const TokenId> ids,
                  Rows<const float> hidden, int k, LinearProposer& dense, Proposal& out);
/// Same as propose_rows(), but reads rows `at` of a store in place; at[i] is the row of token ids[i].
void propose_gathered(ProposeContext& context, const kernels::RowMajorMatrix& store,
                      std::span<const TokenId> at, std::span<const TokenId> ids, Rows<const float> hidden,
                      int k, std::vector<float>& logits, Proposal& out);
/// Replaces row numbers in `out` by tokens ids[row]. Records gather with its child remap.
void remap_ids(ProposeContext& context, std::span<const TokenId> ids, int rows, Proposal& out);
/// Returns the cost of one call that reads all of `rows`.
HeadCost matrix_cost(const kernels::Matrix& rows);

/// Checks that the LM head covers the vocabulary; an error names the head.
Status check_weights(const HeadWeights& weights, std::string_view head);
/// Returns vocab / parts, rounded up to 64 rows, at most vocab.
int vocab_fraction(int vocab, int parts);

}  // namespace draftscope
