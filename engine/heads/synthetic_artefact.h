#pragma once

#include <memory>
#include <string>

#include "engine/heads/artefact.h"

/// Artefacts with random values for synthetic targets (engine/formats/synthetic_model.h). Such a head costs
/// as much as a fitted one of its parameters, but its proposals are useless.
namespace draftscope {

struct SyntheticArtefact {
    ArtefactInfo info;
    std::shared_ptr<const WeightSource> tensors;
};
/// `target` is "synthetic:NAME"; parameters absent from `spec` have the defaults of `fit`.
Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec);

/// Creates a token ranking (`ids`, `counts`): token i is the i-th most frequent, with counts by Zipf's law.
Result<std::unique_ptr<WeightSource>> make_synthetic_ranking(const std::string& target);

}  // namespace draftscope
