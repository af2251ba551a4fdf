#pragma once

#include <string>
#include <string_view>

#include "capture/capture.h"

/// What the tool bar says about an engine that is held or has nothing to show yet.
namespace draftscope {

/// "held after head, level 2 (412 us); next: topk". `reason`: "paused" or "breakpoint: ...".
std::string hold_text(const HoldPoint& point, std::string_view reason);

/// "reading the prompt: 45 tokens (prefill)" until the newest run has its first round; "" from then on.
std::string prefill_text(const Snapshot& snapshot);

}  // namespace draftscope
