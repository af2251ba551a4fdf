#pragma once

#include <string_view>

#include "app/gui/panels/style.h"

/// Drawing helpers shared by the panels and the shell.
namespace draftscope {

enum class Icon { none, play, pause, stop, step, left, right, newest };

/// Draws a button with an icon and a label, which may end in "##id". `primary` uses the accent colour.
bool icon_button(const Style& style, Icon icon, const char* label, bool enabled = true, bool primary = false);

/// Draws text in one line, cut with an ellipsis at `width` (0 = to the end of the line). The tooltip has the
/// full text.
void draw_cut_text(std::string_view text, float width = 0);
/// Draws a wrapped, dimmed explanation.
void draw_hint(const Style& style, std::string_view text);
/// Shows `text` in a wrapped tooltip if the last item is hovered or has the keyboard focus.
void show_tooltip(const Style& style, std::string_view text);
/// Draws a legend entry on the current line: a swatch and its name.
void draw_legend_entry(const Style& style, ImU32 colour, const char* name);
/// Draws diagonal hatching inside a rectangle: the pattern of the remainder and of excluded steps.
void draw_hatching(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, float spacing);

}  // namespace draftscope
