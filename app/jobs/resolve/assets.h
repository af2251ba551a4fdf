#pragma once

#include <string>

namespace draftscope {

/// Returns the path of an asset; "" if not found. Searches DRAFTSCOPE_ASSETS, the executable's folder, the
/// source tree and the user's cache folder.
std::string find_asset(const std::string& relative_path);
std::string find_demo_model();

}  // namespace draftscope
