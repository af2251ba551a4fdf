#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Texts of the values of an enum, as an array in their order from 0.
namespace draftscope {

/// Returns the text of a value; "" for a number that is none.
template <typename Enum, std::size_t N>
constexpr std::string_view enum_text(const std::string_view (&texts)[N], Enum value) {
    const auto index = static_cast<std::size_t>(value);
    return index < N ? texts[index] : std::string_view();
}
/// Returns the value with this text; absent if there is none.
template <typename Enum, std::size_t N>
constexpr std::optional<Enum> enum_from(const std::string_view (&texts)[N], std::string_view text) {
    for (std::size_t i = 0; i < N; ++i)
        if (texts[i] == text) return static_cast<Enum>(i);
    return std::nullopt;
}
/// As read_text() of base/fields.h: sets the value with this text, or returns all texts ("all, fixed or
/// dynamic").
template <typename Enum, std::size_t N>
std::string read_enum(const std::string_view (&texts)[N], std::string_view text, Enum& value) {
    const std::optional<Enum> found = enum_from<Enum>(texts, text);
    value = found.value_or(value);
    std::string all;
    for (std::size_t i = 0; !found && i < N; ++i)
        all += (i == 0 ? "" : i == N - 1 ? " or " : ", ") + std::string(texts[i]);
    return all;
}

}  // namespace draftscope
