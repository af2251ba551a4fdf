#pragma once

#include <memory>
#include <string>

#include "engine/heads/artefact.h"

/// What `fit` makes, of random values, for synthetic targets (engine/model/synthetic_model.h): a head costs
/// what a fitted one of its parameters costs and proposes nothing of use.
namespace draftscope {

struct SyntheticArtefact {
    ArtefactInfo info;
    std::shared_ptr<const WeightSource> tensors;
};
/// `target` is "synthetic:NAME"; parameters that `spec` leaves out are those that `fit` takes.
Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec);

/// A token ranking (`ids`, `counts`): token i is the i-th most frequent, as often as Zipf's law has it.
Result<std::unique_ptr<WeightSource>> make_synthetic_ranking(const std::string& target);

}  // namespace draftscope
