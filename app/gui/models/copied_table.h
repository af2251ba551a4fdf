#pragma once

#include <string>
#include <string_view>

namespace draftscope {

/// Returns the tables of a text in which "|" begins each cell, as Dear ImGui logs them, with tabs between
/// cells. Other lines are left out. "" without a table.
std::string to_tab_separated(std::string_view logged);
/// Returns the same rows as CSV (RFC 4180): cells with a comma, a quote or a line end are quoted.
std::string to_csv(std::string_view tab_separated);

}  // namespace draftscope
