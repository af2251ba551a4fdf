#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/units.h"
#include "kernels/exec.h"

/// Drafts that are drawn from the draft distribution q instead of taken as its best tokens: what rejection
/// sampling (`--verify pq`) needs to know of them.
namespace draftscope {

/// q over a row's own support, after temperature, top-k and top-p.
struct DraftDistribution {
    std::vector<TokenId> ids;  ///< empty = probs[i] is of token i
    std::vector<float> probs;  ///< add up to 1
    TokenId id_at(std::size_t index) const { return ids.empty() ? static_cast<TokenId>(index) : ids[index]; }
};

struct SampledDrafts {
    double temperature = 1.0;  ///< > 0
    std::uint64_t seed = 0;
    double top_p = 1.0;
    int top_k = 0;  ///< 0 = off
};

struct DrawnDraft {
    TokenId token = no_token;
    float logprob = 0;  ///< log q, earlier draws not taken out
};

/// What drafts are drawn with; whoever draws again and again keeps it for its memory. Of one row at a time.
struct DrawScratch {
    std::vector<std::uint32_t> order;  ///< entries of q, best first
    std::vector<double> uniforms;      ///< of the draws
    std::vector<double> sums;          ///< of q's blocks
    std::vector<std::size_t> taken;    ///< entries that were drawn
    std::vector<DrawnDraft> drawn;
};

/// Makes of q, whose probs are logits on entry, softmax(logits / temperature) over its support, then top-k,
/// then top-p of what is left, as the target's own row is cut (choose_tokens): drafts that the target could
/// never emit would only be rejected. Any q gives the same texts in distribution. NaN counts as impossible.
void make_distribution(const kernels::Exec& exec, const SampledDrafts& settings, DrawScratch& scratch,
                       DraftDistribution& q);

/// The sum of probabilities, of at most 512: partial sums side by side, so that it does not wait for each
/// addition.
double sum_of(std::span<const float> probs);

/// `count` tokens of q without replacement, in the order drawn; fewer where q has fewer. Random numbers as
/// draft_uniform's: by the position drafted and the order of drawing, so that they do not depend on the
/// batch. They lie in the scratch.
std::span<const DrawnDraft> draw_drafts(const DraftDistribution& q, int count, const SampledDrafts& settings,
                                        std::uint64_t sequence, std::int64_t position, DrawScratch& scratch);

/// The same by uniform numbers that are given, one for each draw.
std::span<const DrawnDraft> draw_drafts(const DraftDistribution& q, std::span<const double> uniforms,
                                        DrawScratch& scratch);

/// Uniform numbers in [0, 1) beside token_uniform's: for draft `order` of a position and for its acceptance.
/// A decision at one position never looks at another position's numbers, so each is used for one decision
/// only, also when the position is drafted again in a later round.
double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);
double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order);

}  // namespace draftscope
