#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/jobs/sweep/advice.h"
#include "app/jobs/sweep/sweep_job.h"

/// Options and output that `sweep` and `advise` share.
namespace draftscope::cli {

/// Adds the recording, the profile and the models.
void add_sweep_inputs(CLI::App& command, SweepConfig& config);

/// Returns what both print of the recording, the profile, the passes and the advice.
nlohmann::json sweep_json(const SweepReport& report, const Advice& advice);
/// Returns the figures of a row.
nlohmann::json sweep_row_json(const SweepReport& report, const SweepRow& row);

/// Prints what the settings were predicted from.
void print_sweep_source(const SweepReport& report);
/// Prints estimates, skipped settings, the advice and the time.
void print_advice(const SweepReport& report, const Advice& advice);

}  // namespace draftscope::cli
