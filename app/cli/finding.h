#pragma once

#include <string>

#include "capture/capture.h"

namespace draftscope::cli {

/// What a run found and how sure that is, in one sentence: its speed against plain decoding where the capture
/// has that, else against the full head, else by itself. Ends with a line feed; "" for a run without rounds.
std::string finding_text(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
