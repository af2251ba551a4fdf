#pragma once

#include <filesystem>

namespace draftscope {

/// Returns the user's home folder: HOME, or the user database's entry if HOME is unset or empty.
/// Empty if neither is known.
std::filesystem::path home_folder();

/// Returns XDG_CACHE_HOME/draftscope or ~/.cache/draftscope; empty if no home is known.
std::filesystem::path cache_folder();

}  // namespace draftscope
