#pragma once

#include <string>

#include "app/gui/panels/style.h"

namespace draftscope {

/// Loads the shipped fonts into the current ImGui context, or ImGui's built-in one where `assets` has none.
/// Once per context: 1.92's fonts are rasterised at any size on demand.
void load_fonts(Style& style, const std::string& assets);

/// Sets ImGui's and ImPlot's style for theme and scale (monitor scale times the user's). Between frames only.
void apply_theme(Style& style, ThemeId theme, float scale);

/// Folder with fonts/: environment DRAFTSCOPE_ASSETS, beside the executable, or the source tree's.
std::string find_assets();

}  // namespace draftscope
