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
#include "engine/chat_template/chat_template.h"
#include "engine/decode/session.h"
#include "stats/setting_choice.h"
#include "stats/tree_choice.h"

namespace draftscope {

/// Models and options of the pilot. `options` are the run's; their tree is ignored.
struct AutotuneInputs {
    Target& target;
    Drafter& drafter;
    kernels::Exec& exec;
    DecodeOptions options;
    const ChatTemplate& chat;
    bool chains_only = false;  ///< the drafter drafts only chains
};
/// A prepared head; all members null or empty for drafters without a head.
struct AutotuneHead {
    std::string text;
    LmHead* head = nullptr;
    LmHead* full = nullptr;  ///< null if `head` is the full head
};

/// Chooses the tree of --tree auto on a run's first prompts, under one or several heads. Decodes a few rounds
/// with a long chain and with a large tree, times verifications of 1 to 24 rows, and forecasts every smaller
/// tree. Has no lasting effect except grown caches.
class TreeAutotuner {
  public:
    TreeAutotuner(const AutotuneInputs& inputs, std::vector<Conversation> conversations, DebugGate& gate,
                  const RunHooks& hooks);
    /// Measures chains, or grown trees, under `head`. Does nothing after the gate is cancelled.
    Status chains(const AutotuneHead& head);
    Status trees(const AutotuneHead& head);
    /// --tree quick: forecasts the trees of `known`, whose acceptance is given, from the times of a few
    /// rounds. Takes about 0.1 s per head on the demo model.
    Status costs(const AutotuneHead& head, std::span<const TreeAcceptance> known);
    int rounds() const { return rounds_; }
    /// Returns the forecasts, fastest first. Empty if nothing could be drafted; the default tree then
    /// applies.
    const std::vector<SweepSetting>& forecasts() const { return forecasts_; }

  private:
    void add(SweepSetting forecast, const std::string& head);
    void sort();
    Status measure(const AutotuneHead& head, const TreeShape& shape, bool only_grown);

    AutotuneInputs inputs_;
    std::vector<Conversation> conversations_;
    DebugGate& gate_;
    const RunHooks& hooks_;
    TreeShape chain_, tree_;
    std::vector<std::pair<int, double>> verify_;  ///< as in RoundCosts; empty until measured
    int rounds_ = 0;
    std::vector<SweepSetting> forecasts_;
};

/// --head auto: measures each of `heads` with chains, and the fastest of them also with grown trees. A head's
/// cost per level is the same in both. `load` prepares a head in place of the previous one. A head that fails
/// to load is skipped with a warning.
Status measure_heads(TreeAutotuner& pilot, std::span<const std::string> heads,
                     FunctionRef<Result<AutotuneHead>(std::size_t)> load);

/// Converts a shape to a tree spec.
TreeSpec to_tree_spec(const TreeShape& shape);
/// Returns a list of {head, tree, tau, round_ms, speedup}.
nlohmann::json to_json(std::span<const SweepSetting> forecasts);

}  // namespace draftscope
