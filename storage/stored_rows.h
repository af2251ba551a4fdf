#pragma once

#include <memory>
#include <string>

#include "capture/capture.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Draft trees and spans of a finished capture, read one by one through a connection of its own, so that they
/// outlive whoever opened the file. Null when the file is small, still being written or without its indexes
/// and phases of steps: then all is read at once.
std::shared_ptr<const StoredRows> stored_rows(const std::string& path, const Database& db,
                                              std::int64_t rows_ahead);

/// "" when a tree may be drawn and walked; else what is wrong with it.
std::string tree_problem(RowId round_id, const RoundTree& tree);

}  // namespace draftscope::storage
