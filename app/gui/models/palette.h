#pragma once

#include <cstdint>

/// The window's colours by meaning, as 0xRRGGBB, in two themes. Data colours are Okabe-Ito; on light ground
/// they are darkened to a contrast of at least 3.
namespace draftscope {

enum class ThemeId { dark, light };

struct Palette {
    std::uint32_t ground;         ///< window background
    std::uint32_t panel;          ///< panel background
    std::uint32_t raised;         ///< headers, buttons, table heads
    std::uint32_t raised_hot;     ///< `raised` under the mouse
    std::uint32_t line;           ///< separators, borders, grid lines
    std::uint32_t text;           ///< body text
    std::uint32_t text_dim;       ///< labels, units, explanations
    std::uint32_t text_on_data;   ///< text on a filled data colour
    std::uint32_t accent;         ///< selection, focus, primary button
    std::uint32_t accent_ground;  ///< selection background
    std::uint32_t slider;         ///< a slider's knob, below its value's text
    std::uint32_t good;           ///< accepted, covered, faster
    std::uint32_t bad;            ///< rejected, error
    std::uint32_t warn;           ///< lost records, estimates, out of vocabulary
    std::uint32_t target;         ///< the target's token (bonus token)
    std::uint32_t prefill;        ///< tokens and spans of the prompt
};
const Palette& palette(ThemeId theme);

/// Returns a phase's colour: `rgb` of base/phase_names.h, darkened on light ground.
std::uint32_t phase_colour(int phase_id, ThemeId theme);
/// Returns a data colour (0xRRGGBB, e.g. of a head) adapted to the theme's ground.
std::uint32_t data_colour(std::uint32_t rgb, ThemeId theme);
/// Returns the contrast ratio of two colours (WCAG 2.1), 1..21.
double contrast(std::uint32_t a, std::uint32_t b);

}  // namespace draftscope
