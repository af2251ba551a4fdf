#pragma once

#include <memory>

#include "app/jobs/commands/sweep_view.h"
#include "app/jobs/sweep/advice.h"
#include "app/jobs/sweep/sweep_job.h"
#include "storage/sweep_file.h"

/// Sweeps in captures: table `sweep` (storage/sweep_file.h), and what the window shows of them.
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
/// Writes the settings of a sweep into a capture, in place of those with the same recording. `advice` null =
/// the sweep goes on. `model` is as for advise().
Status save_sweep(const std::string& path, const SweepReport& report, const std::string& model,
                  const Advice* advice);

/// Returns what the window shows of a sweep.
std::shared_ptr<const SweepView> make_sweep_view(const SweepReport& report, const Advice& advice,
                                                 const std::string& model);
/// Returns the sweeps of a capture; none if it has none.
Result<std::vector<std::shared_ptr<const SweepView>>> load_sweep_views(const std::string& path);

}  // namespace draftscope
