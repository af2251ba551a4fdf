#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/fit/affinity.h"
#include "engine/fit/collect.h"
#include "engine/fit/evaluation.h"
#include "engine/fit/fitted_tensor.h"
#include "engine/fit/kmeans.h"
#include "engine/fit/ranking.h"
#include "engine/fit/training.h"
#include "engine/heads/artefact.h"

namespace draftscope::fit {

struct FitOptions {
    std::string head;        ///< a head of the registry, or its suffix rdk
    std::vector<int> ranks;  ///< empty = d/8; one for all levels or one per level
    bool per_level = false;  ///< a separate `down` for every level (path heads: for every drafter head)
    int v = 0;               ///< kept tokens of a trimmed head; 0 = a quarter of the vocabulary
    double alpha = 0.5;      ///< for a recipe that solves the size
    int clusters = 64;       ///< for recipe `clusters`; our default
    int groups = 16;         ///< for recipe `groups`; our default
    bool train = true;       ///< false = stop at the closed form
    bool int8 = false;       ///< store the large matrix of a low-rank or trimmed head as int8
    CollectOptions collect;
    KlOptions kl;
    RouterOptions router;
    AffinityOptions affinity;
};

/// The inputs of a fit. Everything must outlive the call.
struct FitInputs {
    kernels::Backend& backend;
    Drafter* drafter = nullptr;          ///< may be null for recipe `affinity`
    const HeadWeights& weights;          ///< the head to approximate; always_active is kept in vocabularies
    const kernels::Matrix& target_head;  ///< [V, d]: the target's LM head
    int context = 0;
    TextSource* texts = nullptr;
    std::vector<TokenId> ranking;         ///< most frequent first, every real id; if the recipe reads one
    Train train;                          ///< null = only what needs no training
    const HeadArtefact* start = nullptr;  ///< weights that a low-rank head goes on from; null = closed form
    const JointFit* joint = nullptr;      ///< trains the drafter, too: slimspec, specvocab, vocabtrim-t, bcl
};

struct FittedHead {
    std::vector<FittedTensor> tensors;
    std::map<std::string, std::string, std::less<>> parameters;  ///< as in a head spec
    Report report;                                               ///< on held-out rows
    Report notes;  ///< of the fit itself: rows, steps, divergences
};

/// Fits one head; the drafter changes only with inputs.joint. Unknown heads, unsupported sizes and too small
/// recordings are bad_input; a cancelled fit returns ErrorKind::cancelled.
Result<FittedHead> fit_head(const FitInputs& inputs, const FitOptions& options, const JobHooks& hooks);

}  // namespace draftscope::fit
