#pragma once

#include <memory>
#include <string>

#include "capture/capture.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Opens the draft trees and spans of a finished capture for single reads. They use a separate connection, so
/// they may outlive the caller's. Returns null if the file is small, still being written, or lacks indexes or
/// step phases; the caller then reads all rows.
std::shared_ptr<const OnDiskRows> open_on_disk_rows(const std::string& path, const Database& db,
                                                    std::int64_t preload_limit);

/// Returns what is wrong with a tree; "" if it is valid.
std::string tree_problem(RowId round_id, const RoundTree& tree);

}  // namespace draftscope::storage
