#pragma once

#include <array>
#include <string>
#include <string_view>

#include "profiler/compare.h"

/// A comparison in words and table cells: the command line and the window show the same ones.
namespace draftscope {

std::string_view to_text(Change change);  ///< "better", "worse", "no change shown", "too few conversations"

/// The same of a quantity; of a phase that one of the runs lacks "only in B".
std::string change_text(const ComparedQuantity& quantity);

inline constexpr std::array<const char*, 6> compare_columns = {"", "A", "B", "B / A", "95 % interval", ""};
/// By compare_columns: name with its unit, both values, their ratio, its interval, what changed.
std::array<std::string, 6> compare_cells(const ComparedQuantity& quantity);
/// "A  run 1  drafter eagle2  head full  ..."; several runs are named as pooled.
std::string compare_side(char letter, const RunRow& run, const std::vector<RowId>& runs = {});
/// How the numbers came about.
std::string compare_footer(const Comparison& comparison);

}  // namespace draftscope
