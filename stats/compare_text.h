#pragma once

#include <array>
#include <string>
#include <string_view>

#include "stats/compare.h"

/// Formats a comparison as text and table cells, for the command line and the window.
namespace draftscope {

std::string_view to_text(Change change);  ///< "better", "worse", "no change shown", "too few conversations"

/// As to_text(quantity.change), or "only in B" for a phase that one run lacks.
std::string change_text(const ComparedQuantity& quantity);

inline constexpr std::array<const char*, 6> compare_columns = {"", "A", "B", "B / A", "95 % interval", ""};
/// Returns the cells for compare_columns: name with unit, both values, ratio, interval, change.
std::array<std::string, 6> compare_cells(const ComparedQuantity& quantity);
/// Formats one side: "A run 1 drafter eagle2 head full ...". Several runs are shown as pooled.
std::string compare_side(char letter, const RunRow& run, const std::vector<RowId>& runs = {});
/// Formats the distance of a ratio from 1: "3.2 %" for 1.032 and for 0.968.
std::string change_percent(double ratio);
/// Describes how the numbers were computed.
std::string compare_footer(const Comparison& comparison);

}  // namespace draftscope
