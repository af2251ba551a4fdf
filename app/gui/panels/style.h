#pragma once

#include <imgui.h>

#include "app/gui/models/palette.h"

/// Fonts, colours and spacing of the current theme and scale.
namespace draftscope {

struct Style {
    ThemeId theme = ThemeId::dark;
    Palette colours{};          ///< of the theme
    ImFont* ui = nullptr;       ///< proportional
    ImFont* ui_bold = nullptr;  ///< proportional, for headings and key numbers
    ImFont* mono = nullptr;     ///< tokens, code, log
    float em = 16;              ///< body text size in pixels; the unit of all lengths

    ImU32 phase(int phase_id) const;
    /// Returns true if both fonts used for tokens have the character; logs the first that lacks one.
    bool has_glyph(char32_t code) const;
};

/// Converts 0xRRGGBB and alpha 0..1 to ImGui's format.
inline ImU32 to_im(std::uint32_t rgb, float alpha = 1.0f) {
    return IM_COL32((rgb >> 16) & 0xFF, (rgb >> 8) & 0xFF, rgb & 0xFF,
                    static_cast<int>(alpha * 255.0f + 0.5f));
}
inline ImVec4 to_vec(std::uint32_t rgb, float alpha = 1.0f) {
    return ImGui::ColorConvertU32ToFloat4(to_im(rgb, alpha));
}
inline ImU32 Style::phase(int phase_id) const {
    return to_im(phase_colour(phase_id, theme));
}

}  // namespace draftscope
