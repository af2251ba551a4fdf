#pragma once

#include <string>
#include <vector>

#include "base/job_hooks.h"
#include "engine/draft/drafter.h"
#include "engine/fit/dense.h"
#include "engine/fit/samples.h"
#include "engine/heads/head.h"

namespace draftscope::fit {

/// One recorded text with the target's features of every token.
struct FitText {
    std::vector<TokenId> tokens;  ///< prompt and generated tokens
    int prompt_tokens = 0;
    Dense hidden;  ///< [tokens, d] after the final norm; row i is the state after token i
    Dense aux;     ///< [tokens, aux layers * d], or empty
};

/// A source of texts, loaded one at a time, so that memory does not grow with the recording.
class TextSource {
  public:
    virtual ~TextSource() = default;
    virtual int texts() const = 0;
    virtual int generated(int text) const = 0;  ///< tokens after the prompt
    virtual Result<FitText> load(int text) = 0;
};

TextSplit split_texts(const TextSource& texts, HoldOut hold_out);

struct CollectOptions {
    TreeSpec tree;        ///< tree of the drafted rows
    int text_levels = 4;  ///< draft levels of the text rows
    int anchors = 6000;   ///< maximum rounds, spread evenly over the recording
    int label_topk = 10;  ///< the full head's best tokens kept per drafted row; our default
    bool text_rows = true;
    int draft_every = 1;  ///< every how many rounds a tree is drafted; 0 = never
    bool router_inputs = false;
    HoldOut hold_out;
    int lanes = 16;  ///< texts drafted together; part of a recipe, because it determines the order of rows
};

/// Runs `drafter` over the texts as a decode would and collects its head's inputs. At each anchor it
/// processes the target's features and drafts a round, once along the text's own tokens and once as the full
/// head's tree. `weights` is what a head would be prepared with. Texts with fewer than two generated tokens
/// are skipped. Fewer than two usable texts, or missing features, are bad_input.
Result<Samples> collect_samples(kernels::Backend& backend, Drafter& drafter, const HeadWeights& weights,
                                int context, TextSource& texts, const CollectOptions& options,
                                const JobHooks& hooks);

}  // namespace draftscope::fit
