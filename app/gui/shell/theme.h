#pragma once

#include <string>

#include "app/gui/panels/style.h"

namespace draftscope {

/// Loads the fonts of `assets` into the current ImGui context; a missing font is replaced by ImGui's. Call
/// once per context: ImGui rasterises fonts at any size on demand.
void load_fonts(Style& style, const std::string& assets);

/// Sets ImGui's and ImPlot's style. `scale`: monitor scale times the user's scale. Call between frames.
void apply_theme(Style& style, ThemeId theme, float scale);

/// Returns the folder that contains fonts/: $DRAFTSCOPE_ASSETS, next to the executable, or in the source
/// tree. "" if none exists.
std::string find_assets();

}  // namespace draftscope
