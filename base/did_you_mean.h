#pragma once

#include <span>
#include <string>
#include <string_view>

namespace draftscope {

/// Returns the name among `known` that a misspelt `word` probably means; "" when none is close.
/// Close is an edit distance of one per three letters, where swapping two neighbours is one edit.
std::string_view closest_name(std::string_view word, std::span<const std::string_view> known);

/// Returns "; did you mean NAME?" for the end of an error message, or "" when no name is close.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace draftscope
