#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/jobs/prompt_file.h"
#include "app/jobs/run_job.h"
#include "app/jobs/shipped_acceptance.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/session/session.h"
#include "profiler/tree_choice.h"

namespace draftscope {

/// A loaded drafter on its target. `options` are the run's; their tree is not looked at.
struct PilotParts {
    Target& target;
    Drafter& drafter;
    kernels::Exec& exec;
    DecodeOptions options;
    bool raw = false;
    bool chains_only = false;  ///< of a drafter that drafts nothing else
};
/// A prepared head; all null and empty for drafters without one.
struct PilotHead {
    std::string text;
    Head* head = nullptr;
    Head* full = nullptr;  ///< null where `head` is the full one
};

/// What `--tree auto` finds out on a run's own first prompts, under one head or several: decodes a few rounds
/// of the first conversations under a long chain and under a large tree, times verifications of 1 to 24 rows,
/// and forecasts every smaller tree. Leaves nothing behind but caches that grew.
class TreePilot {
  public:
    TreePilot(const PilotParts& parts, std::vector<Conversation> conversations, Gate& gate,
              const RunHooks& hooks);
    /// Measures chains, or grown trees, under `head`. Nothing happens once the gate is cancelled.
    Status chains(const PilotHead& head);
    Status trees(const PilotHead& head);
    /// `--tree quick`: forecasts the trees of `known`, whose tau need no measuring, from the times of a few
    /// rounds. Takes about a tenth of a second a head on the demo model.
    Status costs(const PilotHead& head, std::span<const TreeAcceptance> known);
    int rounds() const { return rounds_; }
    /// Best speed first. Empty when nothing could be drafted: the default tree stays.
    const std::vector<TreeForecast>& forecasts() const { return forecasts_; }

  private:
    void sort();
    Status measure(const PilotHead& head, const TreeShape& shape, bool only_grown);

    PilotParts parts_;
    std::vector<Conversation> conversations_;
    Gate& gate_;
    const RunHooks& hooks_;
    TreeShape chain_, tree_;
    std::vector<std::pair<int, double>> verify_;  ///< as in RoundCosts; empty until measured
    int rounds_ = 0;
    std::vector<TreeForecast> forecasts_;
};

/// --head auto: each of `heads` under chains, and those whose chains are fastest under grown trees as well:
/// what a head costs at one level it costs at every other. `load` prepares one, in place of the one before; a
/// head that cannot be is left out with a warning.
Status measure_heads(TreePilot& pilot, std::span<const std::string> heads,
                     FunctionRef<Result<PilotHead>(std::size_t)> load);

TreeSpec spec_of(const TreeShape& shape);
/// A list of {head, tree, tau, round_ms, speedup}.
nlohmann::json to_json(std::span<const TreeForecast> forecasts);

}  // namespace draftscope
