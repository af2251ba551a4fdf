#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "app/jobs/commands/sweep_report.h"
#include "base/job_hooks.h"
#include "base/result.h"

/// Finds the setting that decodes a model's texts fastest on this machine. A target's decode is recorded,
/// costs are measured, the settings are searched, and the advised one is run.
namespace draftscope {

class DebugGate;

/// Options of `draftscope advise` and of "Find the fastest setting".
struct FindFastestConfig {
    /// Model, prompts, sampling, threads, precision and weights of heads. Drafter, head and tree are the
    /// present setting, which is run in turns with the advised one. Without a prompt file, 12 shipped
    /// conversations are used.
    RunConfig run;
    std::string recording;  ///< folder; "" = records
    std::string profile;    ///< file; "" = measures, and keeps it for this machine, model and precision
    std::vector<std::string> drafters;  ///< NAME[:PATH]; empty = the present one and ngram
    std::vector<std::string> heads;     ///< empty = those of `default_heads` that have their files
    int batch = 1;
    std::string save;  ///< capture of the settings and the advice; "" = none
};

/// Calls of a search: its step, and the settings so far with their advice, after each part of the search.
struct FindFastestHooks : JobHooks {
    std::function<void(FindStep)> on_step;
    std::function<void(SweepReport)> on_settings;
};

/// Runs the four steps. Blocks. A recording or a profile that is given is not made. If cancelled during the
/// live runs, returns the report without them; if cancelled before, returns an error, and keeps what was
/// measured.
Result<SweepReport> find_fastest(const FindFastestConfig& config, DebugGate& gate,
                                 const FindFastestHooks& hooks);

/// Returns where the costs of this machine for a run are kept; "" if no cache folder is known.
std::string kept_profile_path(const FindFastestConfig& config);

}  // namespace draftscope
