#pragma once

#include <string>
#include <vector>

/// System fonts for the scripts that the shipped fonts lack.
namespace draftscope {

/// Returns an installed font for each script, at most one per script. Fonts without outlines, as those with
/// coloured emoji, are left out. `folders` are searched with their subfolders.
std::vector<std::string> find_script_fonts(const std::vector<std::string>& folders);
/// Returns the factor that gives a font's letters the size of the shipped font's. Fonts with tall lines, as
/// for Arabic, are scaled to the height of a line and would be small.
float font_enlargement(const std::string& path);
/// Returns the folders in which systems and users install fonts.
std::vector<std::string> font_folders();

/// Returns "no installed font has Thai characters: install fonts-noto-core (Debian), ..."; "" for a character
/// of an unknown script.
std::string missing_font_notice(char32_t character);

}  // namespace draftscope
