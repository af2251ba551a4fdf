#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/gui/panels/panel.h"

namespace draftscope {

/// How a path is chosen.
struct PathChoice {
    std::vector<std::string> endings;         ///< of the files that the dialog lists
    bool folders = false;                     ///< a folder may be chosen, too
    std::span<const std::string> known = {};  ///< offered in a list
};
/// Draws a field for a path that fills the line, with a button for the dialog. Known paths are in a list.
/// Calls `chosen` after an edit or a choice. `path` lives at least as long as the window.
void path_field(PanelContext& context, const char* id, const char* hint, std::string& path,
                const PathChoice& choice, const std::function<void()>& chosen = {});

}  // namespace draftscope
