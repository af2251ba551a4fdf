#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/fit/affinity.h"
#include "engine/fit/collect.h"
#include "engine/fit/evaluation.h"
#include "engine/fit/kmeans.h"
#include "engine/fit/ranking.h"
#include "engine/fit/router.h"

namespace draftscope::fit {

/// A tensor of an artefact, in the bytes that go to the file.
struct FittedTensor {
    std::string name;
    std::string type;  ///< "F16", "I32"
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
};
FittedTensor half_tensor(std::string name, const Dense& values);  ///< F16
FittedTensor half_tensor(std::string name, std::span<const float> values);
FittedTensor integer_tensor(std::string name, std::vector<std::int64_t> shape,
                            std::span<const std::int32_t> values);

/// `name` in I8 and its scales, `name`.scales F16 [rows, ceil(cols / 64)]: half the bytes of F16, and not
/// coarser than what an int8 head rounds to.
std::vector<FittedTensor> int8_tensors(const std::string& name, const Dense& values);

struct FitOptions {
    std::string head;        ///< slimspec, specvocab, vocabtrim-t, bcl, coral, dynaspec, rdk
    std::vector<int> ranks;  ///< empty = d/8; one for all levels or one per level
    bool per_level = false;  ///< a `down` of its own for every level (path heads: one per drafter head)
    int v = 0;               ///< kept tokens of vocabtrim-t; 0 = a quarter of the vocabulary
    double alpha = 0.5;      ///< of bcl
    int clusters = 64;       ///< of dynaspec; our default
    int groups = 16;         ///< of coral; our default
    bool train = true;       ///< false = stop at the closed form
    bool int8 = false;       ///< store the large matrix of a low-rank or trimmed head as int8
    CollectOptions collect;
    KlOptions kl;
    RouterOptions router;
    AffinityOptions affinity;
};

/// What a fit works on. Everything outlives the call.
struct FitInputs {
    kernels::Exec& exec;
    Drafter* drafter = nullptr;          ///< may be null for rdk
    const HeadWeights& weights;          ///< the head to be approximated
    const kernels::Matrix& target_head;  ///< [V, d]: the target's own
    int context = 0;
    TextSource* texts = nullptr;
    std::vector<TokenId> ranking;  ///< most frequent first, every real id; for trimmed heads and coral
};

struct FittedHead {
    std::vector<FittedTensor> tensors;
    std::map<std::string, std::string, std::less<>> parameters;  ///< as in a head spec
    Report report;                                               ///< held out
    Report notes;  ///< of the fit itself: rows, steps, divergences on the way
};

/// Fits one head post-hoc: the drafter stays as it is. Unknown heads, sizes that do not fit and traces too
/// small are bad_input; a cancelled fit returns ErrorKind::cancelled.
Result<FittedHead> fit_head(const FitInputs& inputs, const FitOptions& options, const Hooks& hooks);

}  // namespace draftscope::fit
