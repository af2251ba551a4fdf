#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/commands.h"
#include "app/jobs/shipped_acceptance.h"
#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/session/session.h"
#include "engine/tree/draft_tree.h"
#include "kernels/matrix.h"
#include "profiler/tier.h"
#include "profiler/tree_choice.h"

namespace draftscope {

struct HeadCandidate {
    HeadSpec spec;
    HeadArtefacts artefacts;
};

/// A config turned into the engine's own types; every field was checked.
struct ResolvedRun {
    RunConfig config;        ///< with defaults filled in; backend is cpu or cuda
    TreeSpec tree;           ///< under --tree auto the default until the pilot has chosen
    bool auto_tree = false;  ///< --tree auto or quick
    /// --tree quick: what its forecasts rest on; empty under auto, whose pilot measures that.
    ShippedAcceptance shipped;
    std::vector<TreeForecast> forecasts;  ///< of its pilot
    /// --head auto: every head that has what it needs, under quick of those in `shipped`; `head` is the first
    /// until the pilot has chosen.
    std::vector<HeadCandidate> head_candidates;
    VerifySpec verify;
    std::optional<ReplayedAcceptance> acceptance;  ///< absent = the target decides
    std::optional<HeadSpec> head;                  ///< absent for drafters without one
    HeadArtefacts artefacts;
    std::string drafter_id;
    std::string drafter_path;
    std::string ranking_path;  ///< frequency ranking for coverage; "" = none known for this target
    std::optional<kernels::Precision> precision;  ///< absent = auto
    Tier tier = Tier::t0;                         ///< as asked
    bool gpu = false;                             ///< computes on a CUDA device
    int library_rows = 0;  ///< --numerics fast: products of so many rows may be a library's; 0 = exact
    bool demo_model = false;
};
/// `replay`: heads that know the text to come are allowed.
Result<ResolvedRun> resolve_run(const RunConfig& config, bool replay = false);

/// "slimspec:rank=72,fr-spec:v=8192,bytes=1" in its specs: a piece `key=value` without a colon continues the
/// spec before it.
std::vector<std::string> split_specs(const std::string& list);
/// A head of --shadow: "slimspec" follows the text at its own pace, "aligned:slimspec" drafts in the driving
/// head's rounds.
struct ResolvedShadow {
    ResolvedRun run;  ///< as a run of its own would have it
    bool aligned = false;
};
/// The heads of --shadow, checked against `run`.
Result<std::vector<ResolvedShadow>> resolve_shadows(const ResolvedRun& run);

}  // namespace draftscope
