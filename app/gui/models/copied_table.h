#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What a user does with any table: sort its rows, and copy it.
namespace draftscope {

/// What a cell sorts by: a number or a text. Cells without either come last in both directions.
struct SortKey {
    template <std::convertible_to<std::optional<double>> Number>
    SortKey(Number value) : number(value) {}
    SortKey(std::string value) : text(std::move(value)) {}
    std::optional<double> number;
    std::string text;
};
/// Returns the places of `keys` in ascending or descending order. Equal keys keep their order.
std::vector<std::size_t> sorted_places(const std::vector<SortKey>& keys, bool descending);

/// Returns the tables of a text in which "|" begins each cell, as Dear ImGui logs them, with tabs between
/// cells. Other lines are left out. "" without a table.
std::string to_tab_separated(std::string_view logged);
/// Returns the same rows as CSV (RFC 4180): cells with a comma, a quote or a line end are quoted.
std::string to_csv(std::string_view tab_separated);

}  // namespace draftscope
