#pragma once

#include <implot.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/models/copied_table.h"
#include "app/gui/models/plane.h"
#include "app/gui/models/sweep.h"
#include "app/gui/panels/style.h"

/// Drawing helpers shared by the panels and the shell.
namespace draftscope {

constexpr ImGuiTableFlags table_flags =
    ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoBordersInBody | ImGuiTableFlags_PadOuterX;
constexpr ImGuiTableFlags scrolling_table_flags =
    table_flags | ImGuiTableFlags_ScrollX | ImGuiTableFlags_ScrollY;
/// Of a table whose headings are drawn by draw_headings().
constexpr ImGuiTableFlags sorting_flags =
    ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_NoSavedSettings;
/// A column of numbers: its heading is at the right, and the first click sorts downwards.
constexpr ImGuiTableColumnFlags number_column = ImGuiTableColumnFlags_PreferSortDescending;
constexpr ImPlotFlags plot_flags = ImPlotFlags_NoMenus | ImPlotFlags_NoBoxSelect | ImPlotFlags_NoMouseText;

enum class Icon { none, play, pause, stop, step, left, right, newest };

/// Draws a button with an icon and a label, which may end in "##id". `primary` uses the accent colour.
bool icon_button(const Style& style, Icon icon, const char* label, bool enabled = true, bool primary = false);

/// Sets the colour of texts until the end of the scope.
class TextColour {
  public:
    explicit TextColour(std::uint32_t rgb) { ImGui::PushStyleColor(ImGuiCol_Text, to_im(rgb)); }
    ~TextColour() { ImGui::PopStyleColor(); }
    TextColour(const TextColour&) = delete;
    TextColour& operator=(const TextColour&) = delete;
};
/// Draws text in one line, cut with an ellipsis at `width` (0 = to the end of the line). The tooltip has the
/// full text.
void draw_cut_text(std::string_view text, float width = 0);
inline void draw_cut_text(std::string_view text, float width, std::uint32_t rgb) {
    const TextColour colour(rgb);
    draw_cut_text(text, width);
}
/// Returns text that fits into `width`: without its middle, since the ends of names tell them apart. A copied
/// table has the whole text.
std::string cut_middle(std::string_view text, float width);
void draw_wrapped(std::uint32_t rgb, std::string_view text);
/// Draws a wrapped, dimmed explanation.
inline void draw_hint(const Style& style, std::string_view text) {
    draw_wrapped(style.colours.text_dim, text);
}
void draw_in_font(ImFont* font, std::string_view text);
/// Begins a table's row, whose first cell is this text.
void begin_row(std::string_view text);
/// The column by which a table is sorted; -1 = in the given order.
struct TableOrder {
    int column = -1;
    bool descending = false;
    bool operator==(const TableOrder&) const = default;
};
/// Draws a table's headings. A click sorts the rows by a column; the third one restores the given order.
TableOrder draw_headings();
/// Returns the rows in this order. `keys(row)` returns a row's SortKey of each column.
template <typename Keys>
std::vector<std::size_t> order_rows(TableOrder order, std::size_t rows, Keys&& keys) {
    std::vector<std::size_t> places(rows);
    std::iota(places.begin(), places.end(), std::size_t{0});
    if (order.column < 0) return places;
    std::vector<SortKey> of_column;
    for (const std::size_t row : places)
        of_column.push_back(std::vector<SortKey>(keys(row))[static_cast<std::size_t>(order.column)]);
    return sorted_places(of_column, order.descending);
}
/// Draws a table cell whose text is at the right.
void draw_cell_right(const std::string& text, bool dim = false);
/// As draw_cell_right, for a percentage over a bar of the same share. A hatched bar is diagonal lines.
void draw_share_cell(double share, const std::string& text, ImU32 colour, bool hatched = false);
/// Draws a list of items to choose from. `text` returns an item's text, and that of `chosen`.
template <typename Items, typename Item, typename Text>
void choose_item(const char* id, const Items& items, Item& chosen, Text&& text) {
    if (!ImGui::BeginCombo(id, std::string(text(chosen)).c_str())) return;
    for (const auto& item : items)
        if (ImGui::Selectable(std::string(text(item)).c_str(), item == chosen)) chosen = item;
    ImGui::EndCombo();
}
/// Draws the choice of a group of published results, which fills the line.
void choose_group(const Style& style, const std::vector<PublishedGroup>& groups, bool enabled,
                  std::size_t& chosen);
/// Shows `text` in a wrapped tooltip if the last item is hovered or has the keyboard focus.
void show_tooltip(const Style& style, std::string_view text);
/// Begins a modal dialog, which appears at the centre. EndPopup() must follow if it is shown.
bool begin_dialog(const char* title, bool* open = nullptr, ImGuiWindowFlags flags = 0);
/// Returns the colour of a head's marks. `head` is its spec; "" = the full head.
std::uint32_t head_rgb(const Style& style, std::string_view head);
/// Draws a horizontal line with caps of this radius at its ends.
void draw_interval_line(ImDrawList* list, float low_x, float high_x, float y, float radius, ImU32 colour);
/// Draws a legend entry on the current line: a swatch and its name.
void draw_legend_entry(const Style& style, ImU32 colour, const char* name);
/// Draws a five-pointed star.
void draw_star(ImDrawList* list, ImVec2 at, float radius, ImU32 fill, ImU32 edge);
void draw_diamond(ImDrawList* list, ImVec2 at, float radius, ImU32 fill, ImU32 edge, float edge_width);
/// Draws a disc (0), or another shape for each further series of one colour.
void draw_shape(ImDrawList* list, int shape, ImVec2 at, float radius, ImU32 colour);
/// Sets a tick at each value of a plot's x axis, with the labels that fit. `width`: of the plot's inside.
void set_value_ticks(const std::vector<double>& values, const ValueRange& range, bool logarithmic,
                     float width);
/// Draws diagonal hatching inside a rectangle: the pattern of the remainder and of excluded steps.
void draw_hatching(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, float spacing);

}  // namespace draftscope
