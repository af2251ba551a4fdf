#pragma once

#include <optional>
#include <string>

#include "capture/capture.h"
#include "profiler/bootstrap.h"

namespace draftscope::cli {

/// A run's speed against plain decoding of the same prompts.
struct PlainSpeed {
    Estimate ratio;
    std::size_t conversations = 0;
};

/// What a run found and how sure that is, in one sentence: its speed against plain decoding where the capture
/// has that, else against the full head, else by itself. Ends with a line feed; "" for a run without rounds.
std::string finding_text(const Snapshot& snapshot, RowId run_id, const std::optional<PlainSpeed>& plain);

}  // namespace draftscope::cli
