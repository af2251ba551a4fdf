#pragma once

#include <optional>
#include <vector>

#include "capture/capture.h"
#include "profiler/bootstrap.h"

/// "x AR": a run's speed against plain autoregressive decoding in the same capture, by the same definition as
/// the view v_speedup.
///
/// Both sides are committed tokens per second of counted steps over the prompts that both have: those of the
/// run, and of every run without a drafter of the same setting (plain_setting() of capture/run_setting.h),
/// with the same external id, turn and text and with counted time on both sides. A step's time is divided
/// evenly among its rounds.
namespace draftscope {

struct SpeedUp {
    std::vector<RowId> plain_runs;  ///< those that have a prompt of the run
    std::size_t prompts = 0, conversations = 0;
    std::size_t conversations_of_run = 0;
    double tokens_per_second = 0, plain_tokens_per_second = 0;  ///< over those prompts
    Estimate ratio;                                             ///< the interval resamples conversations
};
/// Absent for a run without a drafter, and where no plain run has a prompt of it.
std::optional<SpeedUp> speed_up(const Snapshot& snapshot, RowId run_id, const BootstrapOptions& options = {});

/// What captures of earlier versions kept in place of a plain run: tokens per second over the run's first
/// prompts, which the run's own speed does not belong beside.
std::optional<double> earlier_baseline(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope
