#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace draftscope {

/// Maps a byte to its printable character in GPT-2's byte-to-unicode table. Printable bytes map to
/// themselves, the other 68 to U+0100 and up in byte order (space: U+0120, newline: U+010A).
char32_t byte_to_unicode(std::uint8_t byte);
/// Maps a character back to its byte; nullopt for characters outside the table.
std::optional<std::uint8_t> unicode_to_byte(char32_t character);

/// Returns the characters of `bytes` in this table, as UTF-8.
std::string encode_byte_level(std::string_view bytes);
/// Decodes a vocabulary entry to bytes; nullopt if it is not valid UTF-8 or contains a character outside the
/// table.
std::optional<std::string> decode_byte_level(std::string_view text);

}  // namespace draftscope
