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

/// One recorded text with the target's features of every token.
struct FitText {
    std::vector<TokenId> tokens;  ///< prompt and generated tokens
    int prompt_tokens = 0;
    Dense hidden;  ///< [tokens, d] after the final norm; row i is the state after token i
    Dense aux;     ///< [tokens, aux layers * d], or empty
};

/// A source of texts. One text is loaded at a time, so that memory does not grow with the recording.
class TextSource {
  public:
    virtual ~TextSource() = default;
    virtual int texts() const = 0;
    virtual int generated(int text) const = 0;  ///< number of tokens after the prompt
    virtual Result<FitText> load(int text) = 0;
};

/// Splits the texts into training and held-out ones.
TextSplit split_texts(const TextSource& texts, HoldOut hold_out);

struct CollectOptions {
    TreeSpec tree;        ///< tree of the drafted rows
    int text_levels = 4;  ///< draft levels of the text rows
    int anchors = 6000;   ///< maximum number of rounds, spread evenly over the recording
    int label_topk = 10;  ///< number of the full head's best tokens kept for each drafted row; our default
    bool text_rows = true;
    int drafted_every = 1;  ///< every how many rounds a tree is drafted; 0 = never
    bool router_inputs = false;
    HoldOut hold_out;
    int lanes = 16;  ///< texts drafted together; determines the order of the rows, so it is part of a recipe
};

/// Runs `drafter` over the texts as a decode would and collects the inputs of its head.
///
/// Each anchor is a catch-up with the target's features and a round, once with the text's own tokens and once
/// with the full head's tree. `weights` is what a head would be prepared with. Texts with fewer than two
/// generated tokens are skipped. Fewer than two usable texts, or missing features that the drafter needs, are
/// bad_input.
Result<Samples> collect_samples(kernels::Exec& exec, Drafter& drafter, const HeadWeights& weights,
                                int context, TextSource& texts, const CollectOptions& options,
                                const Hooks& hooks);

}  // namespace draftscope::fit
