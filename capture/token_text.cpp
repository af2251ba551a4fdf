#include "capture/token_text.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "capture/capture.h"

namespace draftscope {
namespace {

void append_character(std::string_view character, char32_t code, std::string& out) {
    if (code == U'\n')
        out += "\\n";
    else if (code == U'\t')
        out += "\\t";
    else if (code == U'\r')
        out += "\\r";
    else if (code < 0x20 || code == 0x7f)
        out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
    else
        out += character;
}

}  // namespace

std::string format_bytes(std::string_view bytes) {
    std::string out = "<";
    for (const char byte : bytes)
        out += fmt::format("{}{:02X}", out.size() > 1 ? " " : "",
                           static_cast<unsigned>(static_cast<unsigned char>(byte)));
    return out + ">";
}

std::string format_token(std::string_view bytes) {
    std::string out;
    while (!bytes.empty()) {
        if (const std::size_t invalid = invalid_utf8_prefix(bytes); invalid > 0) {
            out += format_bytes(bytes.substr(0, invalid));
            bytes.remove_prefix(invalid);
            continue;
        }
        const Utf8Unit unit = next_utf8(bytes);
        append_character(bytes.substr(0, unit.length), unit.character, out);
        bytes.remove_prefix(unit.length);
    }
    return out;
}

std::string quote_token(std::string_view bytes, std::size_t max_characters) {
    if (!bytes.empty() && invalid_utf8_prefix(bytes) == bytes.size()) return format_bytes(bytes);
    std::size_t end = 0;
    for (std::size_t units = 0; end < bytes.size() && units < max_characters; ++units)
        end += next_utf8(bytes.substr(end)).length;
    return fmt::format("\"{}{}\"", format_token(bytes.substr(0, end)), end < bytes.size() ? "..." : "");
}

std::string token_label(const Snapshot& snapshot, const RunRow* run, TokenId token) {
    if (token == no_token) return "none";
    const Vocab* vocab = run == nullptr ? nullptr : snapshot.vocab(run->vocab_id);
    if (vocab == nullptr || token < 0 || static_cast<std::size_t>(token) >= vocab->rows.size())
        return fmt::format("#{}", token);
    const VocabRow& row = vocab->rows[token];
    const std::string& bytes = row.bytes.empty() ? row.text : row.bytes;
    return bytes.empty() ? fmt::format("#{}", token) : quote_token(bytes);
}

std::string replace_missing_glyphs(std::string_view text, const std::function<bool(char32_t)>& has_glyph) {
    std::string out;
    while (!text.empty()) {
        const Utf8Unit unit = next_utf8(text);
        if (unit.kind != Utf8Unit::Kind::character)
            out += format_bytes(text.substr(0, unit.length));
        else if (unit.character < 0x80 || has_glyph(unit.character))
            out += text.substr(0, unit.length);
        else
            out += fmt::format("<U+{:04X}>", static_cast<std::uint32_t>(unit.character));
        text.remove_prefix(unit.length);
    }
    return out;
}

}  // namespace draftscope
