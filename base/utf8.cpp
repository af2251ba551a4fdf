#include "base/utf8.h"

#include <cstdint>

namespace draftscope {
namespace {

/// Well-formed sequences by first byte (Unicode 15, table 3-7): length and the range of the second byte.
struct LeadByte {
    std::size_t length;
    std::uint8_t low, high;
};

LeadByte classify_lead_byte(std::uint8_t byte) {
    if (byte < 0x80) return {1, 0, 0};
    if (byte < 0xc2) return {0, 0, 0};
    if (byte < 0xe0) return {2, 0x80, 0xbf};
    if (byte == 0xe0) return {3, 0xa0, 0xbf};
    if (byte == 0xed) return {3, 0x80, 0x9f};
    if (byte < 0xf0) return {3, 0x80, 0xbf};
    if (byte == 0xf0) return {4, 0x90, 0xbf};
    if (byte < 0xf4) return {4, 0x80, 0xbf};
    if (byte == 0xf4) return {4, 0x80, 0x8f};
    return {0, 0, 0};
}

}  // namespace

Utf8Unit next_utf8(std::string_view bytes) {
    using Kind = Utf8Unit::Kind;
    const auto first = static_cast<std::uint8_t>(bytes[0]);
    const LeadByte lead = classify_lead_byte(first);
    if (lead.length == 0) return {Kind::invalid, 1, 0};
    if (lead.length == 1) return {Kind::character, 1, first};
    char32_t character = first & (0x7fu >> lead.length);
    for (std::size_t i = 1; i < lead.length; ++i) {
        if (i == bytes.size()) return {Kind::incomplete, i, 0};
        const auto byte = static_cast<std::uint8_t>(bytes[i]);
        const std::uint8_t low = i == 1 ? lead.low : 0x80;
        const std::uint8_t high = i == 1 ? lead.high : 0xbf;
        if (byte < low || byte > high) return {Kind::invalid, i, 0};
        character = character << 6 | (byte & 0x3fu);
    }
    return {Kind::character, lead.length, character};
}

void append_utf8(char32_t c, std::string& out) {
    const auto continuation = [&](int shift) { out += static_cast<char>(0x80u | (c >> shift & 0x3fu)); };
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xc0u | c >> 6);
        continuation(0);
    } else if (c < 0x10000) {
        out += static_cast<char>(0xe0u | c >> 12);
        continuation(6);
        continuation(0);
    } else {
        out += static_cast<char>(0xf0u | c >> 18);
        continuation(12);
        continuation(6);
        continuation(0);
    }
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const Utf8Unit unit = next_utf8(bytes.substr(at));
        if (unit.kind != Utf8Unit::Kind::character) break;
        at += unit.length;
    }
    return at;
}

std::size_t invalid_utf8_prefix(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const Utf8Unit unit = next_utf8(bytes.substr(at));
        if (unit.kind == Utf8Unit::Kind::character) break;
        at += unit.length;
    }
    return at;
}

}  // namespace draftscope
