#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capture/capture.h"

/// What is known of a run that another engine decoded. What its file does not say is left out, and named.
namespace draftscope::cli {

/// Returns whether phases of steps were imported.
bool has_phases(const Snapshot& snapshot, RowId run_id);
std::string imported_text(const Snapshot& snapshot, const RunRow& run);
/// Header of the file, acceptance in at least each number of tokens, sums, categories, coverage, and
/// `missing`.
nlohmann::json imported_json(const Snapshot& snapshot, const RunRow& run);

}  // namespace draftscope::cli
