#pragma once

#include <filesystem>
#include <string_view>

namespace draftscope {

/// Returns the user's home folder: HOME, or the user database's entry if HOME is unset or empty.
/// Empty if neither is known.
std::filesystem::path home_folder();

/// Returns XDG_CACHE_HOME/draftscope or ~/.cache/draftscope; empty if no home is known.
std::filesystem::path cache_folder();

/// Replaces a file at once, so that no reader sees a part of it, and creates its folder. Returns whether it
/// was written.
bool replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace draftscope
