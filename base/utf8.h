#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace draftscope {

/// The unit at the start of a byte string.
struct Utf8Unit {
    enum class Kind {
        character,  ///< one well-formed character
        invalid,    ///< bytes that cannot start or continue one (the longest such prefix, as Unicode advises)
        incomplete,  ///< the bytes end inside a character that more bytes could complete
    };
    Kind kind = Kind::character;
    std::size_t length = 0;  ///< bytes, at least 1
    char32_t character = 0;  ///< when kind is character
};

/// Decodes the first unit of `bytes`, which must not be empty.
Utf8Unit next_utf8(std::string_view bytes);

/// Returns the length of the first character with the marks and joined characters that are drawn on it.
/// Invalid bytes count as characters.
std::size_t drawn_character_length(std::string_view bytes);

/// Appends a character in UTF-8.
void append_utf8(char32_t character, std::string& out);

/// Return the number of leading bytes that are well-formed, or that are not well-formed, respectively.
std::size_t valid_utf8_prefix(std::string_view bytes);
std::size_t invalid_utf8_prefix(std::string_view bytes);

}  // namespace draftscope
