#pragma once

#include <cstdint>

/// Every colour of the window, by meaning, as 0xRRGGBB. Two themes; data colours are Okabe-Ito (light:
/// darkened until each has a contrast of 3 against the ground).
namespace draftscope {

enum class ThemeId { dark, light };

struct Palette {
    std::uint32_t ground;         ///< window background
    std::uint32_t panel;          ///< panel background
    std::uint32_t raised;         ///< headers, buttons, table heads
    std::uint32_t raised_hot;     ///< the same under the mouse
    std::uint32_t line;           ///< separators, borders, grid lines
    std::uint32_t text;           ///< body text
    std::uint32_t text_dim;       ///< labels, units, explanations
    std::uint32_t text_on_data;   ///< text on a filled data colour
    std::uint32_t accent;         ///< the one accent: selection, focus, primary button
    std::uint32_t accent_ground;  ///< selection background
    std::uint32_t slider;         ///< a slider's knob, over which its value is written
    std::uint32_t good;           ///< accepted, covered, faster
    std::uint32_t bad;            ///< rejected, error
    std::uint32_t warn;           ///< losses, estimates, out of vocabulary
    std::uint32_t target;         ///< the target's own (bonus) token
    std::uint32_t prefill;        ///< tokens and spans of the prompt
};
const Palette& palette(ThemeId theme);

/// Colour of a phase in a theme; `rgb` of capture/phase_names.h, darkened on light ground.
std::uint32_t phase_colour(int phase_id, ThemeId theme);
/// A data colour (a head's, 0xRRGGBB) made readable on the theme's ground.
std::uint32_t data_colour(std::uint32_t rgb, ThemeId theme);
/// Contrast ratio of two colours (WCAG 2.1), 1..21.
double contrast(std::uint32_t a, std::uint32_t b);

}  // namespace draftscope
