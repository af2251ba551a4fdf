#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/jobs/commands/sweep_view.h"
#include "base/job_hooks.h"
#include "base/result.h"

namespace draftscope {

/// Runs a sweep or a search for the window, with the defaults of the commands. Blocks.
Result<std::shared_ptr<const SweepView>> run_window_sweep(const SweepRequest& request, const JobHooks& hooks);

/// Returns the machine profiles that ship with the program, as paths.
std::vector<std::string> shipped_profiles();

}  // namespace draftscope
