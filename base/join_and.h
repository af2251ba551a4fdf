#pragma once

#include <span>
#include <string>

namespace draftscope {

/// Lists names in a sentence: "a", "a and b", "a, b and c".
inline std::string join_and(std::span<const std::string> names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
    return text;
}

}  // namespace draftscope
