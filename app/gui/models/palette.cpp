#include "app/gui/models/palette.h"

#include <algorithm>
#include <cmath>

#include "base/phase_names.h"

namespace draftscope {
namespace {

#define DS_DARK(name, dark, light) dark,
#define DS_LIGHT(name, dark, light) light,
constexpr Palette dark_palette = {DS_PALETTE(DS_DARK)}, light_palette = {DS_PALETTE(DS_LIGHT)};
#undef DS_DARK
#undef DS_LIGHT
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
