#pragma once

#include "app/jobs/sweep/sweep_job.h"

namespace draftscope {

/// Sweeps coarse to fine over drafters, heads, their sizes and trees. Chains rank the heads and sizes; the
/// fastest of them are swept with grown trees, and the best of these with further top-k and depths. `config`
/// is as for run_sweep(), but its trees are ignored, and no heads stand for all that are usable. Later steps
/// keep whatever is near the fastest, so that a single conversation hardly decides what they sweep. The
/// result is saved at the end, in place of what `config.save` had.
Result<SweepReport> run_search(const SweepConfig& config, const JobHooks& hooks);

}  // namespace draftscope
