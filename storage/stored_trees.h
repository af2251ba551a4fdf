#pragma once

#include <memory>
#include <string>

#include "capture/capture.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Draft trees of a finished capture, read by round through a connection of their own, so that they outlive
/// whoever opened the file. Null when the file is small, still being written or without its indexes: then
/// trees are read with everything else.
std::shared_ptr<const TreeSource> stored_trees(const std::string& path, const Database& db,
                                               std::int64_t trees_ahead);

/// "" when a tree may be drawn and walked; else what is wrong with it.
std::string tree_problem(RowId round_id, const RoundTree& tree);

}  // namespace draftscope::storage
