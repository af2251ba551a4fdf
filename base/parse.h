#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace draftscope {

/// Returns the text without blanks at its ends.
inline std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Returns the number that is all of `text`; absent for other texts.
template <typename Number>
std::optional<Number> parse_number(std::string_view text, [[maybe_unused]] int base = 10) {
    Number value{};
    const char* const last = text.data() + text.size();
    std::from_chars_result read{};
    if constexpr (std::is_integral_v<Number>)
        read = std::from_chars(text.data(), last, value, base);
    else
        read = std::from_chars(text.data(), last, value);
    return read.ec == std::errc() && read.ptr == last ? std::optional(value) : std::nullopt;
}

/// Returns the numbers of a list such as "2,15,27"; absent if one of them is none, or not in [low, high].
template <typename Number>
std::optional<std::vector<Number>> parse_numbers(std::string_view text, char separator, Number low,
                                                 Number high) {
    std::vector<Number> out;
    for (std::size_t first = 0; first <= text.size();) {
        const std::size_t end = std::min(text.find(separator, first), text.size());
        const auto number = parse_number<Number>(text.substr(first, end - first));
        if (!number || !(*number >= low && *number <= high)) return std::nullopt;
        out.push_back(*number);
        first = end + 1;
    }
    return out;
}

}  // namespace draftscope
