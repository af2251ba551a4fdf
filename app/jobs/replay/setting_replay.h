#pragma once

#include "app/jobs/commands/sweep_report.h"
#include "base/job_hooks.h"
#include "base/result.h"
#include "capture/record.h"

namespace draftscope {

/// Replays a setting along one conversation and sends it to `sink` as a run: texts, rounds and trees. The run
/// has acceptance `replayed` and no times. Blocks.
Status replay_setting(const SettingReplay& wanted, RowIds& ids, RecordSink& sink, const JobHooks& hooks);

}  // namespace draftscope
