#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/prompt_file.h"
#include "app/jobs/resolve.h"
#include "app/jobs/run_job.h"
#include "engine/model/target.h"

namespace draftscope {

/// "exact" = 0; "fast" and "fast:ROWS" = rows from which on a library may make a device's products.
Result<int> parse_numerics(const std::string& text);

/// What a run with --numerics fast has to say for itself: the first turns of `conversations` in `report`,
/// read again with exact kernels. Absent for exact runs, and where a text is not the target's own (other
/// rules, replayed acceptance). The device is exact afterwards.
Result<std::optional<ExactCheck>> check_fast_run(const ResolvedRun& run, Target& target, kernels::Exec& exec,
                                                 const std::vector<Conversation>& conversations,
                                                 const std::vector<PromptReport>& prompts);

}  // namespace draftscope
