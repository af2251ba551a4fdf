#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "engine/heads/head.h"
#include "kernels/head.h"
#include "kernels/row_store.h"

namespace draftscope {

/// Rows in memory that only grows, by more than is asked for: a shortlist that becomes longer round by round
/// does not take new memory each time.
Rows<float> rows_in(std::vector<float>& memory, int rows, int columns);

/// Fills `out` from dense draft logits [rows, columns >= support]: logsumexp and top-k over the first
/// `support` columns. Ids are column numbers. Records phase topk with its child softmax.
void select_candidates(ProposeContext& context, Rows<const float> logits, int support, int k, Proposal& out);

/// Proposals from the first `support` outputs of a matrix, the same as select_candidates() of the product: in
/// one pass that never writes the logits in full where that pays and no draft is drawn from them, else by way
/// of `logits`. Ids are row numbers. Records phases head and topk with its child softmax (on a device the
/// selection is part of the head's pass), and hands the
/// logits of drawn drafts to keep_support() under `ids`.
class DenseProposal {
  public:
    void propose(ProposeContext& context, const kernels::Matrix& rows, const float* bias, int support,
                 std::span<const TokenId> ids, Rows<const float> hidden, int k, std::uint64_t bytes,
                 Proposal& out);

    /// From up (down h) without the rows between leaving the device that both factors lie on. False, with
    /// nothing done, where they do not.
    bool propose_through(ProposeContext& context, const kernels::Matrix& down, const kernels::Matrix& up,
                         int support, Rows<const float> hidden, int k, Proposal& out);

  private:
    /// Where the matrix lies on a device, product and selection are one pass, all of it phase head; `make`
    /// runs it.
    void propose_there(ProposeContext& context, int support, int hidden_rows, int k, std::uint64_t bytes,
                       FunctionRef<void(Rows<std::int32_t>, Rows<float>)> make, Proposal& out);
    static bool stays_there(const ProposeContext& context, const kernels::Matrix& rows, int support, int k,
                            int hidden_rows);

    kernels::HeadPartials partials_;
    std::vector<float> logits_;
};

/// Appends rows of logits over the first `support` columns to context.support when drafts are drawn; column i
/// is token ids[i], or i when `ids` is empty.
void keep_support(ProposeContext& context, Rows<const float> logits, int support,
                  std::span<const TokenId> ids);

/// Proposes from `rows`, whose row i is the head's row of token ids[i]; rising ids make ties go to the lower
/// token, as in the full head. Records phases head, topk and gather with its child remap.
void propose_rows(ProposeContext& context, const kernels::Matrix& rows, std::span<const TokenId> ids,
                  Rows<const float> hidden, int k, DenseProposal& dense, Proposal& out);
/// The same from rows `at` of a store, read where they lie; at[i] is the row of token ids[i].
void propose_scattered(ProposeContext& context, const kernels::RowStore& store, std::span<const TokenId> at,
                       std::span<const TokenId> ids, Rows<const float> hidden, int k,
                       std::vector<float>& logits, Proposal& out);
/// Turns row numbers in `out` into the tokens ids[row]. Records gather with its child remap.
void remap_ids(ProposeContext& context, std::span<const TokenId> ids, int rows, Proposal& out);
/// The same rows' logits at their tokens' places in `out` ([rows, vocab]), -inf elsewhere.
void score_rows(kernels::Exec& exec, const kernels::Matrix& rows, std::span<const TokenId> ids,
                Rows<const float> hidden, std::vector<float>& logits, Rows<float> out);
/// Cost of one call that reads all of `rows`.
HeadCost cost_of(const kernels::Matrix& rows);

/// An LM head that fits its vocabulary, else an error that names the head.
Status check_weights(const HeadWeights& weights, std::string_view head);
/// vocab / parts, rounded up to 64 rows and never more than vocab.
int part_of_vocab(int vocab, int parts);

}  // namespace draftscope
