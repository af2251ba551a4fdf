#include "app/jobs/resolve/run_drafter.h"

#include <algorithm>
#include <cstdlib>

#include "engine/draft/drafter_files.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

/// Returns the part of the weights that a drafter determines.
HeadWeights drafter_part(const ResolvedRun& run, const Drafter& drafter, const Target& target) {
    HeadWeights weights;
    weights.lm_head =
        drafter.properties().lm_head != nullptr ? drafter.properties().lm_head : &target.lm_head();
    weights.row_ids = drafter.properties().lm_head_ids;
    weights.hidden = weights.lm_head->k();
    weights.drafter_bytes =
        static_cast<double>(drafter.properties().weight_bytes + drafter.properties().feature_weight_bytes);
    weights.drafter = run.drafter_id;
    // Without a checkpoint hash, weights of any drafter of this type are accepted.
    if (const auto hash = checkpoint_hash(parse_drafter_path(run.drafter_path)); hash.ok())
        weights.drafter_hash = *hash;
    return weights;
}

}  // namespace

Result<std::unique_ptr<Drafter>> load_drafter(const ResolvedRun& run, Target& target,
                                              kernels::Backend& backend) {
    const std::string spec =
        run.drafter_path.empty() ? run.drafter_id : run.drafter_id + ":" + run.drafter_path;
    return make_drafter(spec, run.drafter_path, target, backend);
}

HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target) {
    HeadWeights weights = drafter_part(run, drafter, target);
    const Tokenizer& tokenizer = *target.tokenizer();
    weights.always_active = tokenizer.eos();
    weights.vocab = std::min(tokenizer.size(), target.lm_head().n());
    weights.target = target.config().name;
    weights.tokenizer = tokenizer.fingerprint();
    return weights;
}

HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target,
                         const RecordedTarget& recorded) {
    HeadWeights weights = drafter_part(run, drafter, target);
    weights.always_active = recorded.eos;
    weights.vocab = recorded.tokens;
    weights.target = recorded.name;
    if (!recorded.tokenizer_hash.empty())
        weights.tokenizer = std::strtoull(recorded.tokenizer_hash.c_str(), nullptr, 16);
    return weights;
}

}  // namespace draftscope
