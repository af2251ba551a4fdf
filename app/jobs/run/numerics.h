#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_job.h"
#include "engine/transformer/target.h"

namespace draftscope {

/// Parses --numerics. "exact" gives 0; "fast" and "fast:ROWS" give the minimum rows of a product that a
/// library may compute on the device.
Result<int> parse_numerics(const std::string& text);

/// Verifies a run with --numerics fast: decodes the first turns of `prompts` again with exact kernels. Absent
/// for exact runs and for texts that are not the target's own (other rules, simulated acceptance). The device
/// uses exact kernels afterwards.
Result<std::optional<ExactCheck>> check_fast_run(const ResolvedRun& run, Target& target,
                                                 kernels::Backend& backend, const ChatTemplate& chat,
                                                 const std::vector<Conversation>& conversations,
                                                 const std::vector<PromptReport>& prompts);

}  // namespace draftscope
