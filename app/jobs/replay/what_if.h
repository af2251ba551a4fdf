#pragma once

#include <string>

#include "app/jobs/commands/sweep_report.h"
#include "base/job_hooks.h"
#include "base/result.h"
#include "capture/record.h"

namespace draftscope {

/// Drafts one round of a capture again with another setting, from the same text. Sends it to `sink` as a run
/// of one round. The target's files must be those of the run. Blocks.
Status what_if(const WhatIf& wanted, const std::string& capture, RowIds& ids, RecordSink& sink,
               const JobHooks& hooks);

}  // namespace draftscope
