#pragma once

#include "app/jobs/sweep/sweep_job.h"

/// Sweeps in captures: table `sweep` (storage/sweep_file.h).
namespace draftscope {

/// Returns the settings of a capture that were swept with the same recording, without their costs. None if
/// the file does not exist.
Result<std::vector<SweepSetting>> load_sweep(const std::string& path, const std::string& source);
/// Writes the settings of a sweep into a capture, in place of those with the same recording.
Status save_sweep(const std::string& path, const SweepReport& report);

}  // namespace draftscope
