#include "app/jobs/resolve/source_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "engine/draft/drafter_files.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

/// Hashes a file, or the files of a folder in the order of their names. What cannot be read does not count:
/// loading it reports why.
std::uint64_t hash_of(const std::string& path, std::uint64_t hash) {
    if (path.empty()) return hash;
    for (const std::string& file : files_of(path))
        if (const auto one = checkpoint_hash(file); one.ok()) hash = fnv1a(*one, hash);
    return hash;
}

}  // namespace

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
