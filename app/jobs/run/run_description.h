#pragma once

#include <string>

#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/run_plan.h"
#include "capture/record.h"
#include "profiler/cupti/tier.h"

namespace draftscope {

/// Returns the database row of a run that starts now, with the loaded models and settings.
RunRow describe_run(const RunPlan& plan, const ModelCache& models, const TierChoice& tier,
                    const std::string& frontend, RowId id);

}  // namespace draftscope
