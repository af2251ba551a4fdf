#pragma once

#include <cstdint>

/// The window's colours by meaning, as 0xRRGGBB, in two themes. Data colours are Okabe-Ito; on light ground
/// they are darkened to a contrast of at least 3.
namespace draftscope {

enum class ThemeId { dark, light };

/// Names of the colours, as 0xRRGGBB in the dark and in the light theme.
#define DS_PALETTE(COLOUR)                                                                     \
    COLOUR(ground, 0x101214, 0xE9ECEF)        /* window background */                          \
    COLOUR(panel, 0x171A1D, 0xFBFCFD)         /* panel background */                           \
    COLOUR(raised, 0x23282D, 0xE3E7EB)        /* headers, buttons, table heads */              \
    COLOUR(raised_hot, 0x2F363D, 0xD3DAE0)    /* `raised` under the mouse */                   \
    COLOUR(line, 0x31373D, 0xC6CDD4)          /* separators, borders, grid lines */            \
    COLOUR(text, 0xE4E7EA, 0x1B1F23)          /* body text */                                  \
    COLOUR(text_dim, 0x99A2AB, 0x5B646D)      /* labels, units, explanations */                \
    COLOUR(text_on_data, 0x0B0D0F, 0xFFFFFF)  /* text on a filled data colour */               \
    COLOUR(accent, 0x56B4E9, 0x0067A3)        /* selection, focus, primary button */           \
    COLOUR(accent_ground, 0x1F4258, 0xCBE3F3) /* selection background */                       \
    COLOUR(slider, 0x3A6782, 0x86B6D4)        /* a slider's knob, below its value's text */    \
    COLOUR(good, 0x1DB58A, 0x007A59)          /* accepted, covered, faster */                  \
    COLOUR(bad, 0xE8743B, 0xB84A00)           /* rejected, error */                            \
    COLOUR(warn, 0xE6B422, 0x8F6A00)          /* lost records, estimates, out of vocabulary */ \
    COLOUR(target, 0xE69F00, 0xA86400)        /* the target's token (bonus token) */           \
    COLOUR(prefill, 0x8D949B, 0x6B737B)       /* tokens and spans of the prompt */

struct Palette {
#define DS_DECLARE_COLOUR(name, dark, light) std::uint32_t name;
    DS_PALETTE(DS_DECLARE_COLOUR)
#undef DS_DECLARE_COLOUR
};
const Palette& palette(ThemeId theme);

/// Returns a phase's colour: `rgb` of base/phase_names.h, darkened on light ground.
std::uint32_t phase_colour(int phase_id, ThemeId theme);
/// Returns a data colour (0xRRGGBB, e.g. of a head) adapted to the theme's ground.
std::uint32_t data_colour(std::uint32_t rgb, ThemeId theme);
/// Returns the contrast ratio of two colours (WCAG 2.1), 1..21.
double contrast(std::uint32_t a, std::uint32_t b);

}  // namespace draftscope
