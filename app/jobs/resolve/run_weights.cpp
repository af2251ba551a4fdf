#include "app/jobs/resolve/run_weights.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/hash.h"
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

/// Returns the number of tokens that the LM head has rows for, as far as it limits them.
int rows_of(const HeadWeights& weights) {
    return weights.row_ids.empty() ? weights.lm_head->n() : std::numeric_limits<int>::max();
}

/// Hashes a file, or the files of a folder in the order of their names. What cannot be read does not count:
/// loading it reports why.
std::uint64_t hash_of(const std::string& path, std::uint64_t hash) {
    if (path.empty()) return hash;
    for (const std::string& file : files_of(path))
        if (const auto one = checkpoint_hash(file); one.ok()) hash = fnv1a(*one, hash);
    return hash;
}

}  // namespace

Result<std::unique_ptr<Drafter>> load_drafter(const ResolvedRun& run, Target& target,
                                              kernels::Backend& backend) {
    const std::string spec =
        run.drafter_path.empty() ? run.drafter_id : run.drafter_id + ":" + run.drafter_path;
    return make_drafter(run.pair + spec, run.drafter_path, target, backend);
}

HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target) {
    HeadWeights weights = drafter_part(run, drafter, target);
    const Tokenizer& tokenizer = *target.tokenizer();
    weights.always_active = tokenizer.eos();
    weights.vocab = std::min({tokenizer.size(), target.lm_head().n(), rows_of(weights)});
    weights.target = target.config().name;
    weights.tokenizer = tokenizer.fingerprint();
    return weights;
}

HeadWeights head_weights(const ResolvedRun& run, const Drafter& drafter, const Target& target,
                         const RecordedTarget& recorded) {
    HeadWeights weights = drafter_part(run, drafter, target);
    weights.always_active = recorded.eos;
    weights.vocab = std::min(recorded.tokens, rows_of(weights));
    weights.target = recorded.name;
    if (!recorded.tokenizer_hash.empty())
        weights.tokenizer = std::strtoull(recorded.tokenizer_hash.c_str(), nullptr, 16);
    return weights;
}

std::string recording_key(const DecodeRecording& recording, const std::string& model) {
    std::uint64_t hash = hash_of(recording.folder(), fnv1a_start);
    if (recording.weights_path().empty()) hash = hash_of(model, hash);
    return fmt::format("{:016x}", hash);
}

std::string weights_key(const ResolvedRun& run) {
    std::uint64_t hash = hash_of(parse_drafter_path(run.drafter_path), fnv1a_start);
    for (const std::string& file :
         {run.artefacts.ranking_path, run.artefacts.artefact_path, run.artefacts.affinity_path})
        hash = hash_of(file, hash);
    return hash == fnv1a_start ? std::string() : fmt::format("{:016x}", hash);
}

}  // namespace draftscope
