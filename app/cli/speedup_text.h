#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capture/capture.h"

namespace draftscope::cli {

/// Returns one line: "speed-up 1.25x [1.18, 1.31] against autoregressive decoding: ...", with the prompts it
/// covers. "" if the capture has no baseline.
std::string speedup_text(const Snapshot& snapshot, RowId run_id);
/// Returns `baseline` of `run --json` and `stats --json`. The values are null without a baseline.
nlohmann::json speedup_json(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
