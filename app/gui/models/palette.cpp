#include "app/gui/models/palette.h"

#include <algorithm>
#include <cmath>

#include "base/phase_names.h"

namespace draftscope {
namespace {

constexpr Palette dark_palette = {
    .ground = 0x101214,
    .panel = 0x171A1D,
    .raised = 0x23282D,
    .raised_hot = 0x2F363D,
    .line = 0x31373D,
    .text = 0xE4E7EA,
    .text_dim = 0x99A2AB,
    .text_on_data = 0x0B0D0F,
    .accent = 0x56B4E9,
    .accent_ground = 0x1F4258,
    .slider = 0x3A6782,
    .good = 0x1DB58A,
    .bad = 0xE8743B,
    .warn = 0xE6B422,
    .target = 0xE69F00,
    .prefill = 0x8D949B,
};
constexpr Palette light_palette = {
    .ground = 0xE9ECEF,
    .panel = 0xFBFCFD,
    .raised = 0xE3E7EB,
    .raised_hot = 0xD3DAE0,
    .line = 0xC6CDD4,
    .text = 0x1B1F23,
    .text_dim = 0x5B646D,
    .text_on_data = 0xFFFFFF,
    .accent = 0x0067A3,
    .accent_ground = 0xCBE3F3,
    .slider = 0x86B6D4,
    .good = 0x007A59,
    .bad = 0xB84A00,
    .warn = 0x8F6A00,
    .target = 0xA86400,
    .prefill = 0x6B737B,
};
constexpr double min_contrast = 3.0;

double channel(std::uint32_t value) {
    const double c = static_cast<double>(value & 0xFF) / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

double luminance(std::uint32_t rgb) {
    return 0.2126 * channel(rgb >> 16) + 0.7152 * channel(rgb >> 8) + 0.0722 * channel(rgb);
}

std::uint32_t mix(std::uint32_t rgb, std::uint32_t towards, double amount) {
    std::uint32_t out = 0;
    for (int shift : {16, 8, 0}) {
        const double from = (rgb >> shift) & 0xFF, to = (towards >> shift) & 0xFF;
        out |= static_cast<std::uint32_t>(std::lround(from + (to - from) * amount)) << shift;
    }
    return out;
}

}  // namespace

const Palette& palette(ThemeId theme) {
    return theme == ThemeId::dark ? dark_palette : light_palette;
}

double contrast(std::uint32_t a, std::uint32_t b) {
    const double la = luminance(a), lb = luminance(b);
    return (std::max(la, lb) + 0.05) / (std::min(la, lb) + 0.05);
}

std::uint32_t data_colour(std::uint32_t rgb, ThemeId theme) {
    const Palette& p = palette(theme);
    const std::uint32_t towards = theme == ThemeId::dark ? 0xFFFFFF : 0x000000;
    std::uint32_t colour = rgb;
    for (double amount = 0; amount < 0.8 && contrast(colour, p.panel) < min_contrast; amount += 0.05)
        colour = mix(rgb, towards, amount);
    return colour;
}

std::uint32_t phase_colour(int phase_id, ThemeId theme) {
    for (const PhaseRow& row : phase_rows)
        if (row.id == phase_id) return data_colour(row.rgb, theme);
    return palette(theme).text_dim;
}

}  // namespace draftscope
