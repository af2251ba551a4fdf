#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace draftscope {

struct FolderEntry {
    std::string name;
    bool folder = false;
    std::uint64_t bytes = 0;  ///< 0 for a folder
};
/// Lists folders, then files whose name ends in one of `endings` (empty list = all), each by name. Hidden
/// entries are left out. Returns an error if `folder` cannot be read.
Result<std::vector<FolderEntry>> list_folder(const std::string& folder,
                                             const std::vector<std::string>& endings);

/// Makes a typed path absolute. "~" is the home folder; relative paths start at `folder`.
std::string resolve_path(const std::string& typed, const std::string& folder);
std::string parent_folder(const std::string& folder);
/// Returns a size such as "12.3 MB".
std::string size_text(std::uint64_t bytes);

}  // namespace draftscope
