#pragma once

#include <vector>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/sweep/sweep_job.h"

namespace draftscope {

/// Options of `sweep --confirm`.
struct ConfirmConfig {
    int count = 0;             ///< settings to run, the fastest of the Pareto front; 0 = none
    std::string prompts_file;  ///< of the live runs
    int limit = 0;             ///< conversations, 0 = all
};

/// A setting's prediction and its live run.
struct ConfirmedSetting {
    std::size_t row = 0;  ///< place in SweepReport::rows
    double tau = 0;       ///< measured
    double tokens_per_second = 0;
    Estimate speedup;  ///< measured, over plain decoding of the same prompts
    /// Whether the intervals of predicted and measured speed-up overlap; absent without both.
    std::optional<bool> agrees;
};

/// Checks whether the settings of a sweep could be run live. The profile's back end must be here, and the
/// prompts must be given.
Status check_confirm(const SweepConfig& config, const ConfirmConfig& live);

/// Runs the front's fastest settings of the first batch in turns with plain decoding, on this machine.
Result<std::vector<ConfirmedSetting>> confirm(const SweepReport& report, const SweepConfig& config,
                                              const ConfirmConfig& live, DebugGate& gate,
                                              const JobHooks& hooks);

}  // namespace draftscope
