#pragma once

#include <string>
#include <string_view>

namespace draftscope {

/// Returns "tier 0" for the stored "T0", which next to "T=1" reads like a temperature.
inline std::string tier_text(std::string_view stored) {
    return stored.starts_with('T') ? "tier " + std::string(stored.substr(1)) : std::string(stored);
}

}  // namespace draftscope
