#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "capture/rows.h"

/// Formats tokens as text. The window, the images and the capture file use the same spelling.
namespace draftscope {

struct Snapshot;

/// Formats bytes in hexadecimal: "<F0 9F 99 82>".
std::string format_bytes(std::string_view bytes);

/// Formats a token's bytes as one printable line. Control characters are escaped ("\n", "\x1b"). Bytes that
/// do not form a character are shown in hexadecimal: "<F0 9F>".
std::string format_token(std::string_view bytes);

/// Formats a token's bytes for a label: characters in quotes, truncated after `longest` of them. Bytes that
/// do not form a character are shown in hexadecimal without quotes.
std::string quote_token(std::string_view bytes, std::size_t max_characters = 24);

/// Returns the token's text, or its id ("#123") if the vocabulary is unknown or has no bytes for it.
std::string token_label(const Snapshot& snapshot, const RunRow* run, TokenId token);

/// Replaces characters without a glyph by their code points: "<U+1F642>".
std::string replace_missing_glyphs(std::string_view text, const std::function<bool(char32_t)>& has_glyph);

}  // namespace draftscope
