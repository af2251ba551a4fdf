#pragma once

#include <string>
#include <string_view>

#include "capture/capture.h"

/// Toolbar texts for a paused engine and for a run without rounds.
namespace draftscope {

/// Returns "paused after head, level 2 (412 us); next: topk". `reason`: "paused" or "breakpoint: ...". Of a
/// batch "paused after step 9, prompt 3".
std::string hold_text(const HoldPoint& point, std::string_view reason, const Snapshot& snapshot);

/// Returns "prefill (prompt tokens: 45)" until the newest run has its first round; "" afterwards.
std::string prefill_text(const Snapshot& snapshot);

}  // namespace draftscope
