#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace draftscope {

/// Returns a number with its noun: "1 round", "2 rounds", "0 rounds". The plural is formed by adding an s.
inline std::string format_count(std::int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace draftscope
