#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/fit/low_rank.h"
#include "engine/fit/samples.h"
#include "kernels/matrix.h"

namespace draftscope::fit {

/// The numbers of the held-out report by name. Each is a mean over held-out rows.
using Report = std::map<std::string, double>;

/// The teacher's logits: LM head rows of the fitted head's tokens, applied to the teacher's hidden state.
struct Teacher {
    const kernels::Matrix* target_rows = nullptr;   ///< [>= support, d] of the target; for text rows
    const kernels::Matrix* drafter_rows = nullptr;  ///< of the approximated head; for drafted rows
    int support = 0;                                ///< number of logits, without padding rows
};

/// scores = out act(in x + in_bias) + out_bias, act = SiLU (our default: neither paper names one).
struct RouterWeights {
    Dense in;                     ///< [r, inputs]
    std::vector<float> in_bias;   ///< [r]
    Dense out;                    ///< [groups, r]
    std::vector<float> out_bias;  ///< [groups]
};
enum class RouterInput { hidden, embedding_and_parent };

/// Evaluates a head on held-out rows.
/// - kl: KL(target || head) on text rows, the target renormalised over the head's support
/// - kl_full: the same for the full head
/// - kl_drafter: KL(full head || head) on drafted rows
/// - top1: share of drafted rows on which head and full head have the same best token
/// - recall10: share of the full head's ten best tokens among the head's ten best, on drafted rows
/// - hits: share of text rows whose best token is the text's token; hits_full: of the full head
/// - coverage: share of text rows whose token is in the head's support
/// `support` is the token of each logit, ascending; empty = logit i is token i.
Report evaluate_head(kernels::Backend& backend, const Samples& samples, const Teacher& teacher,
                     const HeadFactors& head, const std::vector<TokenId>& support);

/// Evaluates a router by the groups that it chooses for held-out rows.
/// - coverage: share of text rows whose token is in a chosen group
/// - top1: share of drafted rows whose best token is in a chosen group
/// - recall10: share of the ten best tokens of drafted rows that are in a chosen group
/// - active: mean number of tokens scored, as a share of the vocabulary
/// `always` are tokens in every shortlist.
Report evaluate_router(kernels::Backend& backend, const Samples& samples, const RouterWeights& router,
                       RouterInput input, std::span<const std::int32_t> group_of, int chosen,
                       std::span<const TokenId> always);

}  // namespace draftscope::fit
