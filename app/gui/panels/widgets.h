#pragma once

#include <string_view>

#include "app/gui/panels/style.h"

/// Small drawing helpers that several panels and the shell share.
namespace draftscope {

enum class Icon { none, play, pause, stop, step, left, right, newest };

/// A button with a drawn icon before its label; `label` may carry a "##id". `primary` uses the accent.
bool icon_button(const Style& style, Icon icon, const char* label, bool enabled = true, bool primary = false);

/// Dimmed text in one line, cut with an ellipsis where `width` ends (0 = what is left of the line).
void text_cut(std::string_view text, float width = 0);
/// Wrapped, dimmed explanation.
void hint(const Style& style, std::string_view text);
/// Shows `text` wrapped in a tooltip when the last item is hovered (or has the keyboard's focus).
void tooltip(const Style& style, std::string_view text);
/// A colour key: a small swatch and its name, on the current line.
void legend_entry(const Style& style, ImU32 colour, const char* name);
/// Diagonal hatching inside a rectangle: the pattern of the remainder and of excluded steps.
void hatch(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, float spacing);

}  // namespace draftscope
