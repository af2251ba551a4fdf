#pragma once

#include <string>

#include "capture/capture.h"

namespace draftscope::cli {

/// Returns one sentence with a run's main result and its confidence interval. The result is the speed
/// relative to plain decoding if the capture has a baseline, else relative to the full head, else absolute.
/// A second line says why there is no comparison with the full head. Ends with a line feed; "" for a run
/// without rounds.
std::string finding_text(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
