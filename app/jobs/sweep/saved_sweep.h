#pragma once

#include <algorithm>
#include <memory>

#include "app/jobs/commands/sweep_report.h"
#include "base/result.h"

/// Sweeps in captures: table `sweep` (storage/sweep_file.h), and what describes them in table `meta`.
namespace draftscope {

/// Adds a note that the list lacks.
inline void note_once(std::vector<std::string>& list, const std::string& text) {
    if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

/// Sets the costs that a sweep predicts with.
void set_profile(MachineProfile profile, SweepReport& report);

/// Finds the swept setting that was run live, and whether its prediction agrees.
void find_setting(const SweepReport& report, ConfirmedSetting& live);

/// Sets what the window shows besides: a run of the recorded prompts, and the default of `run`.
void prepare_for_window(SweepReport& report);

/// Returns the sweeps of a capture; none if it has none. Files are untrusted: what is missing of a sweep's
/// description, or of another type, counts as empty.
Result<std::vector<std::shared_ptr<const SweepReport>>> load_sweeps(const std::string& path);
/// Writes a sweep into a capture, in place of one with the same source.
Status save_sweep(const std::string& path, const SweepReport& report);

}  // namespace draftscope
