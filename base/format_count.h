#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace draftscope {

/// "1 round", "2 rounds", "0 rounds": a number and its noun, whose plural takes an s.
inline std::string format_count(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace draftscope
