#pragma once

#include "app/jobs/sweep/sweep_job.h"
#include "storage/sweep_file.h"

/// Sweeps in captures: table `sweep` (storage/sweep_file.h).
namespace draftscope {

/// Returns the acceptance of a stored setting, without its costs. `path` is for messages.
Result<SweepSetting> to_setting(const SweptRow& row, const std::string& path);

/// The settings of a capture, without their costs.
struct SavedSweep {
    std::vector<SweepSetting> settings;  ///< with the same source
    std::vector<OracleLine> oracles;     ///< with the same source
    std::size_t others = 0;              ///< settings with another source
    std::string other_source;            ///< of one of them
};
/// Reads the settings of a capture. None if the file does not exist.
Result<SavedSweep> load_sweep(const std::string& path, const std::string& source);
/// Writes the settings of a sweep into a capture, in place of those with the same source.
Status save_sweep(const std::string& path, const SweepReport& report);

}  // namespace draftscope
