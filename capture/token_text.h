#pragma once

#include <functional>
#include <string>
#include <string_view>

/// Tokens as text for people: one spelling for the window, the pictures and the capture file.
namespace draftscope {

/// Bytes in hexadecimal: "<F0 9F 99 82>".
std::string format_bytes(std::string_view bytes);

/// A token's bytes in one printable line. Characters stay, control characters are escaped ("\n", "\x1b"), and
/// bytes that are no character by themselves stand in hexadecimal: "<F0 9F>".
std::string format_token(std::string_view bytes);

/// A token's bytes for a label: characters in quotes, cut after `longest` of them; bytes that are no
/// character as they are, without quotes.
std::string quote_token(std::string_view bytes, std::size_t longest = 24);

/// Replaces characters that can't be drawn by their code points: "<U+1F642>".
std::string replace_missing_glyphs(std::string_view text, const std::function<bool(char32_t)>& has_glyph);

}  // namespace draftscope
