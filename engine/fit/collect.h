#pragma once

#include <string>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/fit/dense.h"
#include "engine/fit/hooks.h"
#include "engine/fit/samples.h"
#include "engine/fit/text_split.h"
#include "engine/heads/head.h"

namespace draftscope::fit {

/// One recorded decode with the target's features of every token.
struct FitText {
    std::vector<TokenId> tokens;  ///< prompt and what was generated
    int prompt_tokens = 0;
    Dense hidden;  ///< [tokens, d] after the final norm; row i is the state after token i
    Dense aux;     ///< [tokens, aux layers * d], or empty
};

/// Where texts come from; one is loaded at a time, so that memory does not grow with the trace.
class TextSource {
  public:
    virtual ~TextSource() = default;
    virtual int texts() const = 0;
    virtual int generated(int text) const = 0;  ///< tokens after the prompt
    virtual Result<FitText> load(int text) = 0;
};

TextSplit split_texts(const TextSource& texts, HoldOut hold_out);

struct CollectOptions {
    TreeSpec tree;        ///< of the drafted rows
    int text_levels = 4;  ///< draft levels of the text rows
    int anchors = 6000;   ///< rounds drafted at most, spread evenly over the trace
    int label_topk = 10;  ///< the full head's best tokens kept per drafted row; our default
    bool text_rows = true;
    int drafted_every = 1;  ///< trees are drafted at each so many-th round; 0 = at none
    bool router_inputs = false;
    HoldOut hold_out;
    int lanes = 16;  ///< texts drafted side by side; rows come in this order, so it is part of a recipe
};

/// Runs `drafter` over the texts as a decode would: catch-up with the target's features, then a round at each
/// anchor, once fed the text's own tokens and once growing the full head's tree. `weights` is what a head
/// would be prepared with. Texts without two generated tokens are passed over; fewer than two usable texts,
/// or features that the drafter needs and the trace lacks, are bad_input.
Result<Samples> collect_samples(kernels::Exec& exec, Drafter& drafter, const HeadWeights& weights,
                                int context, TextSource& texts, const CollectOptions& options,
                                const Hooks& hooks);

}  // namespace draftscope::fit
