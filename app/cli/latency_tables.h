#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capture/capture.h"
#include "stats/latency.h"

namespace draftscope::cli {

/// Returns one line: time to first token, and the latency between tokens; "" without counted steps.
std::string latency_text(const Latency& latency);
nlohmann::json latency_json(const Latency& latency);
/// Returns the tables of acceptance and speed by length of the context and by position in the text; "" if
/// neither spans two bins.
std::string position_text(const Snapshot& snapshot, RowId run_id);
/// Returns `by_context` and `by_position`, lists of bins.
nlohmann::json position_json(const Snapshot& snapshot, RowId run_id);

}  // namespace draftscope::cli
