#pragma once

#include <cstdint>
#include <string_view>

namespace draftscope {

/// Colours of the head strategies (0xRRGGBB, for dark backgrounds). The registry and the panels share this
/// table, because captures and papers only name a head.
struct HeadColour {
    std::string_view id;
    std::uint32_t rgb;
};
inline constexpr HeadColour head_colours[] = {
    {"full", 0xBFC5CB},        {"fr-spec", 0x0072B2},   {"pa-fr", 0x4C9FD1},      {"vocabtrim", 0x56B4E9},
    {"vocabtrim-t", 0x8FCBEB}, {"bcl", 0xC9BE2C},       {"eagle3-own", 0x999999}, {"coral", 0xF0E442},
    {"dynaspec", 0xE69F00},    {"specvocab", 0x009E73}, {"slimspec", 0xD55E00},   {"microspec", 0xCC79A7},
    {"oracle", 0x7F6BC4},
};
/// `head` is an id or a spec ("fr-spec:v=8192+rdk"). Unknown heads are grey.
constexpr std::uint32_t head_colour(std::string_view head) {
    const std::string_view id = head.substr(0, head.find_first_of(":+"));
    for (const HeadColour& row : head_colours)
        if (row.id == id) return row.rgb;
    return 0xA0A8B0;
}

}  // namespace draftscope
