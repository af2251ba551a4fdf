#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace draftscope {

/// Returns the user's home folder: HOME, or the user database's entry if HOME is unset or empty.
/// Empty if neither is known.
std::filesystem::path home_folder();

/// Replaces "~/" at the start of `text`, and behind ':', '=' and ',', by the home folder, if it is known.
std::string expand_home(std::string_view text);

/// Returns the folder of models that were downloaded from the hub: HF_HUB_CACHE, HF_HOME/hub, or
/// huggingface/hub in the cache folder.
std::filesystem::path hub_cache_folder();

/// Returns XDG_CACHE_HOME/draftscope or ~/.cache/draftscope; empty if no home is known.
std::filesystem::path cache_folder();

/// Replaces a file at once, so that no reader sees a part of it, and creates its folder. Returns whether it
/// was written.
bool replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace draftscope
