#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/commands.h"
#include "app/jobs/recorder.h"
#include "base/result.h"
#include "engine/session/exact_check.h"
#include "engine/session/gate.h"
#include "engine/session/session.h"
#include "kernels/device.h"
#include "profiler/cupti_api.h"
#include "profiler/tier.h"
#include "profiler/tree_choice.h"

namespace draftscope {

struct PromptReport {
    std::string id, category;
    int ordinal = 0;  ///< as in its PromptRow
    PromptOutcome outcome;
};
struct BaselineReport {
    bool present = false;
    double tokens_per_second = 0;
    double speedup = 0;
    std::size_t conversations = 0;
};
/// What a run did; the `run` subcommand prints it. Everything else it prints is a query over the snapshot.
struct RunReport {
    RowId run_id = 0;
    std::string frontend;
    std::vector<PromptReport> prompts;
    std::size_t planned_prompts = 0;  ///< turns of all conversations, those that a cancelled run left out too
    BaselineReport baseline;
    int pilot_rounds = 0;  ///< that --tree auto or quick decoded to choose
    /// Of --tree auto or quick, best first: the first was taken, or by quick none when it does not pay.
    std::vector<TreeForecast> forecasts;
    TierChoice tier;
    CuptiProbe cupti;  ///< as the run found it; empty text when nothing of CUPTI was asked
    std::optional<kernels::DeviceUse> gpu;  ///< how the run used its GPU; absent on the CPU
    std::optional<ExactCheck> exact;        ///< what --numerics fast changed
    int pinned_workers = 0;                 ///< threads kept on a CPU of their own
    bool cancelled = false;
    std::string capture;                  ///< the file that was written; "" = none
    std::string storage_error;            ///< the disk filled: what was committed before is kept
    std::vector<LossRow> storage_losses;  ///< rows that the capture file does not have
};

struct RunHooks {
    std::function<void(std::string_view piece)> on_text;
    std::function<void(double fraction, const std::string& what)> on_progress;  ///< fraction < 0 = unknown
    /// Under --tree auto or quick, once it is decided: the config with drafter, head and tree named.
    std::function<void(const RunConfig& chosen)> on_chosen;
    std::function<void()> on_started;  ///< everything is loaded; decoding begins
    std::string frontend = "cli";
    bool phases = true;  ///< false: no phase is timed (to measure what timing costs)
    /// Of the conversations that the config chooses, only these; 0 = all that follow the first.
    int first_conversation = 0, conversations = 0;
};

/// Everything a run keeps between runs of one process: the loaded target, drafters and heads (reloaded only
/// when their config changes), worker pool, row ids.
class EngineHost {
  public:
    EngineHost();
    ~EngineHost();
    /// Loads what is missing, decodes every prompt, records into `recorder`. Blocks; the gate controls it.
    Result<RunReport> run(const RunConfig& config, Recorder& recorder, Gate& gate, const RunHooks& hooks);
    /// New capture file: ids start again at 1.
    void reset_ids();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Checks what can be checked without loading a model: unknown head or drafter, bad tree, missing files.
Status validate(const RunConfig& config);

/// Where the demo model and assets lie: environment DRAFTSCOPE_ASSETS, beside the executable, the source
/// tree, the user's cache folder. "" when not found.
std::string find_asset(const std::string& relative_path);
std::string find_demo_model();
/// --model "" -> demo model; --drafter eagle2 -> demo checkpoint; fr-spec without artefact -> demo ranking.
Result<RunConfig> resolve_defaults(RunConfig config);

}  // namespace draftscope
