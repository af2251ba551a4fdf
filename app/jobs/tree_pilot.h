#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "app/jobs/prompt_file.h"
#include "app/jobs/run_job.h"
#include "base/result.h"
#include "engine/session/session.h"
#include "profiler/tree_choice.h"

namespace draftscope {

/// What `--tree auto` found out on a run's own first prompts.
struct TreePilot {
    int rounds = 0;  ///< 0: nothing could be drafted; the default tree stays
    std::vector<TreeForecast> forecasts;
};

/// A loaded drafter on its target. `options` are the run's; their tree is not looked at.
struct PilotParts {
    Target& target;
    Drafter& drafter;
    Head* head;
    Head* full_head;
    kernels::Exec& exec;
    DecodeOptions options;
    bool raw = false;
    bool chains_only = false;  ///< of a drafter that drafts nothing else
};

/// Decodes a few rounds of the first conversations under a large tree and under a long chain, times
/// verifications of 1 to 24 rows, and forecasts every smaller tree. Leaves nothing behind but caches that
/// grew.
Result<TreePilot> pilot_trees(const PilotParts& parts, const std::vector<Conversation>& conversations,
                              Gate& gate, const RunHooks& hooks);

TreeSpec spec_of(const TreeShape& shape);
/// A list of {tree, tau, round_ms, speedup}.
nlohmann::json to_json(std::span<const TreeForecast> forecasts);

}  // namespace draftscope
