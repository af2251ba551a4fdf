#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capture/capture.h"

namespace draftscope::cli {

/// "speed-up 1.25x [1.18, 1.31] against autoregressive decoding: ...", one line that says over which prompts;
/// "" where nothing of the capture was decoded without a drafter.
std::string speedup_text(const Snapshot& snapshot, RowId run_id);
/// The same as `baseline` of `run --json` and `stats --json`; its values are null without one.
nlohmann::json speedup_json(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
