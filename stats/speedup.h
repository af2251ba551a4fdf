#pragma once

#include <optional>
#include <vector>

#include "capture/capture.h"
#include "stats/bootstrap.h"

/// "x AR": a run's speed relative to plain autoregressive decoding in the same capture. The view v_speedup
/// uses the same definition.
///
/// Both speeds are committed tokens per second of counted steps over the common prompts. The plain runs are
/// all runs without a drafter of the same setting (plain_setting() of capture/run_setting.h). A prompt is
/// common if external id, turn and text agree and both sides have counted time. A step's time is divided
/// evenly among its rounds.
namespace draftscope {

struct Speedup {
    std::vector<RowId> plain_runs;  ///< plain runs that have a prompt of the run
    std::size_t prompts = 0, conversations = 0;
    std::size_t conversations_of_run = 0;
    double tokens_per_second = 0, plain_tokens_per_second = 0;  ///< over the common prompts
    Estimate ratio;                                             ///< the interval resamples conversations
};
/// Returns the speed-up; absent for a run without a drafter, or if no plain run has a prompt of it.
std::optional<Speedup> compute_speedup(const Snapshot& snapshot, RowId run_id,
                                       const BootstrapOptions& options = {});

/// Returns the baseline speed of captures of earlier versions, in tokens per second. They stored it instead
/// of a plain run. It covers the run's first prompts only, so it is not comparable with the run's own speed.
std::optional<double> legacy_baseline(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope
