#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/gui/panels/panel.h"
#include "base/parse.h"

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

/// Shows below a field what is wrong with it, and a button with the nearest valid value. Returns that value
/// once the button is pressed.
std::optional<std::string> draw_mistake(PanelContext& context, std::span<const Mistake> mistakes,
                                        std::string_view field);
/// As draw_mistake(); the button sets the value.
template <typename Value>
void draw_mistake(PanelContext& context, std::span<const Mistake> mistakes, std::string_view field,
                  Value& value) {
    const std::optional<std::string> nearest = draw_mistake(context, mistakes, field);
    if constexpr (std::is_same_v<Value, std::string>)
        value = nearest.value_or(value);
    else if (nearest)
        value = parse_number<Value>(*nearest).value_or(value);
}
/// Draws the button that starts a job, disabled with the reason while a field has a mistake.
bool start_button(PanelContext& context, const char* label, std::span<const Mistake> mistakes, bool enabled);

}  // namespace draftscope
