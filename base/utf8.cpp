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

namespace {

/// Returns whether a character is drawn on the one before it: most marks of Unicode 15.
bool is_drawn_on_previous(char32_t c) {
    struct Range {
        char32_t first, last;
    };
    static constexpr Range ranges[] = {
        {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},     {0x5bf, 0x5c7},     {0x610, 0x61a},
        {0x64b, 0x65f},   {0x670, 0x670},   {0x6d6, 0x6ed},     {0x8d3, 0x903},     {0x93a, 0x93c},
        {0x93e, 0x94f},   {0x951, 0x957},   {0x962, 0x963},     {0x981, 0x983},     {0x9bc, 0x9d7},
        {0xa01, 0xa03},   {0xa3c, 0xa51},   {0xa81, 0xa83},     {0xabc, 0xacd},     {0xb01, 0xb03},
        {0xb3c, 0xb57},   {0xbbe, 0xbd7},   {0xc00, 0xc04},     {0xc3c, 0xc56},     {0xc81, 0xc83},
        {0xcbc, 0xcd6},   {0xd00, 0xd03},   {0xd3b, 0xd4d},     {0xdca, 0xddf},     {0xe31, 0xe31},
        {0xe34, 0xe3a},   {0xe47, 0xe4e},   {0xeb1, 0xeb1},     {0xeb4, 0xebc},     {0xec8, 0xece},
        {0xf71, 0xf84},   {0x102b, 0x103e}, {0x1ab0, 0x1aff},   {0x17b4, 0x17d3},   {0x1dc0, 0x1dff},
        {0x200c, 0x200d}, {0x20d0, 0x20ff}, {0x302a, 0x302f},   {0x3099, 0x309a},   {0xfe00, 0xfe0f},
        {0xfe20, 0xfe2f}, {0xff9e, 0xff9f}, {0x1f3fb, 0x1f3ff}, {0xe0020, 0xe007f}, {0xe0100, 0xe01ef},
    };
    for (const Range& range : ranges)
        if (range.first <= c && c <= range.last) return true;
    return false;
}

bool is_flag_letter(char32_t c) {
    return c >= 0x1f1e6 && c <= 0x1f1ff;
}

}  // namespace

std::size_t drawn_character_length(std::string_view bytes) {
    const Utf8Unit first = next_utf8(bytes);
    std::size_t end = first.length;
    char32_t last = first.character;
    bool flag = is_flag_letter(last);
    while (end < bytes.size()) {
        const Utf8Unit next = next_utf8(bytes.substr(end));
        constexpr char32_t joiner = 0x200d;
        const bool pairs = flag && is_flag_letter(next.character);
        if (last != joiner && !pairs && !is_drawn_on_previous(next.character)) break;
        flag = false;
        last = next.character;
        end += next.length;
    }
    return end;
}

}  // namespace draftscope
