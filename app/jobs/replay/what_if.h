#pragma once

#include <memory>

#include "app/jobs/commands/sweep_report.h"
#include "base/function_ref.h"
#include "base/job_hooks.h"
#include "base/result.h"
#include "capture/capture.h"

namespace draftscope {

/// Drafts one round of `shown` again with another setting, from the same text. Calls `on_drafted` for each
/// head with its setting and a snapshot of one run with one round. The target's files must be those of the
/// run. Blocks.
Status what_if(const WhatIf& wanted, const Snapshot& shown,
               FunctionRef<void(const WhatIf&, std::shared_ptr<const Snapshot>)> on_drafted,
               const JobHooks& hooks);

}  // namespace draftscope
