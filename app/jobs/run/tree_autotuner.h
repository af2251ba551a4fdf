#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/jobs/resolve/shipped_acceptance.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_job.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/decode/session.h"
#include "profiler/stats/tree_choice.h"

namespace draftscope {

/// Models and options of the pilot. `options` are the run's; their tree is ignored.
struct PilotParts {
    Target& target;
    Drafter& drafter;
    kernels::Exec& exec;
    DecodeOptions options;
    bool raw = false;
    bool chains_only = false;  ///< the drafter drafts only chains
};
/// A prepared head; all members null or empty for drafters without a head.
struct PilotHead {
    std::string text;
    Head* head = nullptr;
    Head* full = nullptr;  ///< null if `head` is the full head
};

/// Chooses the tree of --tree auto on a run's first prompts, under one or several heads. Decodes a few rounds
/// with a long chain and with a large tree, times verifications of 1 to 24 rows, and forecasts every smaller
/// tree. Has no lasting effect except grown caches.
class TreePilot {
  public:
    TreePilot(const PilotParts& parts, std::vector<Conversation> conversations, Gate& gate,
              const RunHooks& hooks);
    /// Measures chains, or grown trees, under `head`. Does nothing after the gate is cancelled.
    Status chains(const PilotHead& head);
    Status trees(const PilotHead& head);
    /// --tree quick: forecasts the trees of `known`, whose tau is given, from the times of a few rounds.
    /// Takes about 0.1 s per head on the demo model.
    Status costs(const PilotHead& head, std::span<const TreeAcceptance> known);
    int rounds() const { return rounds_; }
    /// Returns the forecasts, fastest first. Empty if nothing could be drafted; the default tree then
    /// applies.
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

/// --head auto: measures each of `heads` with chains, and the fastest of them also with grown trees. A head's
/// cost per level is the same in both. `load` prepares a head in place of the previous one. A head that fails
/// to load is skipped with a warning.
Status measure_heads(TreePilot& pilot, std::span<const std::string> heads,
                     FunctionRef<Result<PilotHead>(std::size_t)> load);

/// Converts a shape to a tree spec.
TreeSpec spec_of(const TreeShape& shape);
/// Returns a list of {head, tree, tau, round_ms, speedup}.
nlohmann::json to_json(std::span<const TreeForecast> forecasts);

}  // namespace draftscope
