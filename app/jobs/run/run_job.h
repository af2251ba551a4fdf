#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "app/jobs/run/recorder.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/control/debug_gate.h"
#include "engine/decode/exact_check.h"
#include "engine/decode/session.h"
#include "kernels/backend.h"
#include "profiler/cupti/cupti_api.h"
#include "profiler/cupti/tier.h"
#include "stats/sweep_table.h"

namespace draftscope {

/// Result of one prompt.
struct PromptReport {
    std::string id, category;
    int ordinal = 0;  ///< as in PromptRow
    PromptOutcome outcome;
};
/// Result of a run. The run command prints it; its other output comes from queries over the snapshot.
struct RunReport {
    RowId run_id = 0;
    std::string frontend;
    std::vector<PromptReport> prompts;
    std::size_t planned_prompts = 0;  ///< turns of all conversations, also those that a cancelled run skipped
    std::size_t resumed_conversations = 0;  ///< taken over from an earlier run
    int pilot_rounds = 0;                   ///< rounds that --tree auto or quick decoded to choose
    /// Forecasts of --tree auto or quick, best first. The first was chosen, or none if quick expects no gain.
    std::vector<SweepSetting> forecasts;
    bool kept_forecast = false;  ///< they are those of an earlier start
    bool demo_model = false;
    TierChoice tier;
    CuptiProbe cupti;  ///< state of CUPTI; empty text if the run did not request CUPTI
    std::optional<kernels::BackendStats> gpu;  ///< how the run used its GPU; absent on the CPU
    std::optional<ExactCheck> exact;           ///< what --numerics fast changed
    int pinned_workers = 0;                    ///< threads pinned to a CPU each
    bool cancelled = false;
    Notes notes;                          ///< of the model, the drafter, the prompts and the rounds
    std::string capture;                  ///< the file that was written; "" = none
    std::string storage_error;            ///< e.g. disk full; committed rows are kept
    std::vector<LossRow> storage_losses;  ///< rows missing from the capture file
};

class EarlierRuns;

/// Callbacks and options of the caller of a run. The gate stops it, not `cancelled`.
struct RunHooks : JobHooks {
    std::function<void(std::string_view piece)> on_text;
    /// Called before a prompt's text if the run has several prompts: "prompt 3, id q81, turn 2".
    std::function<void(const std::string& title)> on_title;
    bool only_choose = false;  ///< under --tree auto or quick: return with the forecasts, without a run
    std::function<void()> on_started;  ///< everything is loaded; decoding begins
    std::string frontend = "cli";
    bool use_kept_forecast = false;  ///< --tree quick takes the forecast of an earlier start, if there is one
    bool phases = true;              ///< false: phases are not timed (to measure the cost of timing)
    /// Range within the conversations that the config selects; a count of 0 = all from the first.
    int first_conversation = 0, conversations = 0;
    const EarlierRuns* earlier = nullptr;  ///< its complete conversations are not decoded again
    /// With `earlier`, called when its conversations were passed on and decoding begins.
    std::function<void()> on_decoding;
    std::string bench;  ///< value of bench_key in the run's settings, as JSON; "" = none
};

/// State kept between the runs of one process: target, drafter, head, worker pool, row ids. Models are
/// reloaded only if their config changes.
class EngineHost {
  public:
    EngineHost();
    ~EngineHost();
    /// Loads missing models, decodes every prompt and records into `recorder`. Blocks; controlled by `gate`.
    Result<RunReport> run(const RunConfig& config, Recorder& recorder, DebugGate& gate,
                          const RunHooks& hooks);
    /// Row ids that the next run continues.
    RowIds& ids();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
