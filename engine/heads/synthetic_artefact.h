#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"

/// Artefacts with random values for synthetic targets (engine/formats/synthetic_model.h). Such a head costs
/// as much as a fitted one of its parameters, but its proposals are useless.
namespace draftscope {

struct SyntheticArtefact {
    ArtefactInfo info;
    std::shared_ptr<const WeightSource> tensors;
};
/// `target` is "synthetic:NAME"; parameters absent from `spec` have the defaults of `fit`. A head without
/// HeadInfo::synthesize is bad_input.
Result<SyntheticArtefact> make_synthetic_artefact(const std::string& target, const HeadSpec& spec);

/// What HeadInfo::synthesize fills in: parameters, integers and the shapes of random matrices.
struct SyntheticBuilder {
    const HeadSpec& spec;
    SyntheticShape shape;
    ArtefactInfo info;
    std::map<std::string, std::vector<std::int64_t>, std::less<>> integers;
    std::vector<ModelTensor> matrices;
};
/// Adds a down-projection for each level that `rank` lists, and matrix `up` of the largest rank.
Status add_low_rank(SyntheticBuilder& builder, const std::string& up);
/// Adds groups of equal size in tensor `map`, which has the name of the parameter for their number. Also adds
/// a router of `inputs` columns and `width` hidden units.
Status add_routed(SyntheticBuilder& builder, const std::string& map, int groups, int inputs, int width);

/// Creates a token ranking (`ids`, `counts`): token i is the i-th most frequent, with counts by Zipf's law.
Result<std::unique_ptr<WeightSource>> make_synthetic_ranking(const std::string& target);

}  // namespace draftscope
