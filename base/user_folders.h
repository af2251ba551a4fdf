#pragma once

#include <filesystem>

namespace draftscope {

/// Returns the user's home: HOME, or the user database's entry where HOME is unset or empty.
/// Empty when neither is known.
std::filesystem::path home_folder();

/// Returns XDG_CACHE_HOME/draftscope, or ~/.cache/draftscope; empty when no home is known.
std::filesystem::path cache_folder();

}  // namespace draftscope
