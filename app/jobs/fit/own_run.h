#pragma once

#include <string>

#include "app/jobs/fit/fit_job.h"
#include "engine/recording/recording_info.h"

namespace draftscope {

/// Records in `folder` how a draft model answers FitConfig::own_run by itself. Returns the description of the
/// target that it drafts for, of which only config and tokenizer are read.
Result<RecordedTarget> record_own_run(const FitConfig& config, const std::string& folder,
                                      const JobHooks& hooks);

}  // namespace draftscope
