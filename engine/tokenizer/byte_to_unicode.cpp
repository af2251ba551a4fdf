#include "engine/tokenizer/byte_to_unicode.h"

#include <array>

#include "base/utf8.h"

namespace draftscope {
namespace {

constexpr char32_t first_stand_in = 0x100;

constexpr bool prints(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Table {
    std::array<char32_t, 256> characters{};
    std::array<std::uint8_t, 68> stand_ins{};
};

constexpr Table make_table() {
    Table table;
    std::size_t stand_ins = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
        if (prints(byte)) {
            table.characters[byte] = byte;
        } else {
            table.characters[byte] = first_stand_in + static_cast<char32_t>(stand_ins);
            table.stand_ins[stand_ins++] = static_cast<std::uint8_t>(byte);
        }
    }
    return table;
}

constexpr Table table = make_table();

}  // namespace

char32_t byte_to_unicode(std::uint8_t byte) {
    return table.characters[byte];
}

std::optional<std::uint8_t> unicode_to_byte(char32_t character) {
    if (character < first_stand_in) {
        if (!prints(character)) return std::nullopt;
        return static_cast<std::uint8_t>(character);
    }
    const char32_t index = character - first_stand_in;
    if (index >= table.stand_ins.size()) return std::nullopt;
    return table.stand_ins[index];
}

std::string encode_byte_level(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) append_utf8(byte_to_unicode(static_cast<std::uint8_t>(c)), out);
    return out;
}

std::optional<std::string> decode_byte_level(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const Utf8Unit unit = next_utf8(text);
        if (unit.kind != Utf8Unit::Kind::character) return std::nullopt;
        const auto byte = unicode_to_byte(unit.character);
        if (!byte) return std::nullopt;
        out += static_cast<char>(*byte);
        text.remove_prefix(unit.length);
    }
    return out;
}

}  // namespace draftscope
