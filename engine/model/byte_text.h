#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftscope {

/// Byte-level vocabularies spell every byte as one printable character (GPT-2's table): bytes that print
/// stand for themselves, the other 68 for U+0100 upwards in byte order (a space is U+0120, a newline U+010A).
char32_t byte_character(std::uint8_t byte);
/// The byte a character stands for; nothing for characters outside the table.
std::optional<std::uint8_t> character_byte(char32_t character);

/// Bytes in that spelling, as UTF-8.
std::string spell_bytes(std::string_view bytes);
/// The bytes of a vocabulary entry; nothing when it is not valid UTF-8 or leaves the table.
std::optional<std::string> unspell_bytes(std::string_view text);

}  // namespace draftscope
