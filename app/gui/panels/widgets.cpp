#include "app/gui/panels/widgets.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <string>

#include "capture/head_traits.h"

namespace draftscope {
namespace {

void draw_icon(ImDrawList* list, Icon icon, ImVec2 at, float size, ImU32 colour) {
    const float h = size / 2;
    const auto p = [&](float x, float y) { return ImVec2(at.x + x * size, at.y + y * size); };
    switch (icon) {
        case Icon::none:
            break;
        case Icon::play:
            list->AddTriangleFilled(p(0.1f, 0), p(1, 0.5f), p(0.1f, 1), colour);
            break;
        case Icon::pause:
            list->AddRectFilled(p(0.1f, 0), p(0.38f, 1), colour);
            list->AddRectFilled(p(0.62f, 0), p(0.9f, 1), colour);
            break;
        case Icon::stop:
            list->AddRectFilled(p(0.05f, 0.05f), p(0.95f, 0.95f), colour, h * 0.2f);
            break;
        case Icon::step:
            list->AddTriangleFilled(p(0, 0), p(0.7f, 0.5f), p(0, 1), colour);
            list->AddRectFilled(p(0.75f, 0), p(0.95f, 1), colour);
            break;
        case Icon::left:
            list->AddTriangleFilled(p(0.85f, 0), p(0.85f, 1), p(0.1f, 0.5f), colour);
            break;
        case Icon::right:
            list->AddTriangleFilled(p(0.15f, 0), p(0.9f, 0.5f), p(0.15f, 1), colour);
            break;
        case Icon::newest:
            list->AddCircleFilled(p(0.5f, 0.5f), h * 0.75f, colour);
            break;
    }
}

void show_wrapped_tooltip(std::string_view text, float em) {
    if (!ImGui::BeginItemTooltip()) return;
    ImGui::PushTextWrapPos(28 * em);
    ImGui::TextUnformatted(text.data(), text.data() + text.size());
    ImGui::PopTextWrapPos();
    ImGui::EndTooltip();
}

}  // namespace

std::uint32_t head_rgb(const Style& style, std::string_view head) {
    return data_colour(published_head_traits(head.empty() ? full_head_id : head).rgb, style.theme);
}

void draw_interval_line(ImDrawList* list, float low_x, float high_x, float y, float radius, ImU32 colour) {
    list->AddLine({low_x, y}, {high_x, y}, colour, 2);
    for (const float end : {low_x, high_x}) list->AddLine({end, y - radius}, {end, y + radius}, colour, 1.5f);
}

bool icon_button(const Style& style, Icon icon, const char* label, bool enabled, bool primary) {
    const ImGuiStyle& s = ImGui::GetStyle();
    const float size = style.em * 0.68f;
    const ImVec2 text = ImGui::CalcTextSize(label, nullptr, true);
    const float icon_room = icon == Icon::none ? 0 : size;
    const float gap = icon_room > 0 && text.x > 0 ? s.ItemInnerSpacing.x : 0;
    const ImVec2 button(text.x + icon_room + gap + 2 * s.FramePadding.x, ImGui::GetFrameHeight());
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::BeginDisabled(!enabled);
    const bool accented = primary && enabled;
    if (accented) {
        ImGui::PushStyleColor(ImGuiCol_Button, to_im(style.colours.accent));
        ImGui::PushStyleColor(ImGuiCol_ButtonHovered, to_im(style.colours.accent, 0.85f));
        ImGui::PushStyleColor(ImGuiCol_ButtonActive, to_im(style.colours.accent, 0.7f));
    }
    ImGui::PushStyleColor(ImGuiCol_Text, IM_COL32_BLACK_TRANS);
    const bool pressed = ImGui::Button(label, button);
    ImGui::PopStyleColor(accented ? 4 : 1);
    const ImU32 colour =
        accented ? to_im(style.colours.text_on_data) : ImGui::GetColorU32(to_vec(style.colours.text));
    ImDrawList* list = ImGui::GetWindowDrawList();
    draw_icon(list, icon, ImVec2(at.x + s.FramePadding.x, at.y + (button.y - size) / 2), size, colour);
    list->AddText(ImVec2(at.x + s.FramePadding.x + icon_room + gap, at.y + s.FramePadding.y), colour, label,
                  ImGui::FindRenderedTextEnd(label));
    ImGui::EndDisabled();
    return pressed;
}

void draw_cut_text(std::string_view text, float width) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float room = width > 0 ? width : ImGui::GetContentRegionAvail().x;
    const ImVec2 size(std::max(room, 1.0f), ImGui::GetTextLineHeight());
    const char* end = text.data() + text.size();
    const ImVec2 whole = ImGui::CalcTextSize(text.data(), end);
    ImGui::RenderTextEllipsis(ImGui::GetWindowDrawList(), at, ImVec2(at.x + size.x, at.y + size.y + 2),
                              at.x + size.x, text.data(), end, &whole);
    ImGui::Dummy(ImVec2(std::min(size.x, whole.x), size.y));
    if (whole.x > size.x) show_wrapped_tooltip(text, ImGui::GetFontSize());
}

std::string cut_middle(std::string_view text, float width) {
    std::string out(text);
    const auto is_inside = [&](std::size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; };
    for (std::size_t kept = text.size(); kept > 2 && ImGui::CalcTextSize(out.c_str()).x > width; --kept) {
        std::size_t left = kept / 2, right = text.size() - (kept - left);
        while (is_inside(left)) --left;
        while (is_inside(right)) ++right;
        out = std::string(text.substr(0, left)) + "…" + std::string(text.substr(right));
    }
    return ImGui::GetCurrentContext()->LogEnabled ? std::string(text) : out;
}

void draw_wrapped(std::uint32_t rgb, std::string_view text) {
    const TextColour colour(rgb);
    ImGui::PushTextWrapPos(0);
    ImGui::TextUnformatted(text.data(), text.data() + text.size());
    ImGui::PopTextWrapPos();
}

void draw_in_font(ImFont* font, std::string_view text) {
    ImGui::PushFont(font, 0);
    ImGui::TextUnformatted(text.data(), text.data() + text.size());
    ImGui::PopFont();
}

void begin_row(std::string_view text) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(text.data(), text.data() + text.size());
}

TableOrder draw_headings() {
    ImGuiTable* table = ImGui::GetCurrentContext()->CurrentTable;
    const ImGuiStyle& style = ImGui::GetStyle();
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (int i = 0; i < table->ColumnsCount; ++i) {
        if (!ImGui::TableSetColumnIndex(i)) continue;
        ImGuiTableColumn& column = table->Columns[i];
        const char* name = ImGui::TableGetColumnName(i);
        const float width = ImGui::CalcTextSize(name).x;
        const float arrow = 0.65f * ImGui::GetFontSize() + style.FramePadding.x - style.CellPadding.x;
        const float left = ImGui::GetCursorPosX(), start = ImGui::GetCursorScreenPos().x;
        const float room =
            ImGui::GetContentRegionAvail().x - width - (column.SortOrder >= 0 ? std::max(0.0f, arrow) : 0);
        if ((column.Flags & number_column) != 0) ImGui::SetCursorPosX(left + std::max(0.0f, room));
        ImGui::PushID(i);
        ImGui::TableHeader(name);
        ImGui::PopID();
        // The heading's place must not widen the column.
        column.ContentMaxXHeadersIdeal = start + width + std::max(0.0f, arrow);
    }
    const ImGuiTableSortSpecs* order = ImGui::TableGetSortSpecs();
    if (order == nullptr || order->SpecsCount == 0) return {};
    return {order->Specs->ColumnIndex, order->Specs->SortDirection == ImGuiSortDirection_Descending};
}

void draw_cell_right(const std::string& text, bool dim) {
    ImGui::TableNextColumn();
    const float room = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text.c_str()).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    const ImVec4 colour = ImGui::GetStyleColorVec4(dim ? ImGuiCol_TextDisabled : ImGuiCol_Text);
    ImGui::TextColored(colour, "%s", text.c_str());
}

void draw_share_cell(double share, const std::string& text, ImU32 colour, bool hatched) {
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const float length = width * static_cast<float>(std::clamp(share, 0.0, 1.0));
    const ImVec2 min(at.x + width - length, at.y + 0.05f * h), max(at.x + width, at.y + 0.95f * h);
    ImDrawList* list = ImGui::GetWindowDrawList();
    if (hatched)
        draw_hatching(list, min, max, colour, 4);
    else
        list->AddRectFilled(min, max, colour, 2);
    const float room = width - ImGui::CalcTextSize(text.c_str()).x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, room));
    ImGui::TextUnformatted(text.c_str());
}

void choose_group(const Style& style, const std::vector<PublishedGroup>& groups, bool enabled,
                  std::size_t& chosen) {
    ImGui::BeginDisabled(!enabled);
    ImGui::SetNextItemWidth(std::max(8 * style.em, ImGui::GetContentRegionAvail().x));
    choose_item("##group", std::views::iota(std::size_t{0}, groups.size()), chosen,
                [&](std::size_t group) { return groups[group].name; });
    ImGui::EndDisabled();
}

void show_tooltip(const Style& style, std::string_view text) {
    if (!text.empty()) show_wrapped_tooltip(text, style.em);
}

bool begin_dialog(const char* title, bool* open, ImGuiWindowFlags flags) {
    ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing, ImVec2(0.5f, 0.5f));
    ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1.0f);
    const bool shown = ImGui::BeginPopupModal(title, open, flags | ImGuiWindowFlags_NoSavedSettings);
    ImGui::PopStyleVar();
    return shown;
}

void draw_legend_entry(const Style& style, ImU32 colour, const char* name) {
    const float size = style.em * 0.6f;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float top = at.y + (ImGui::GetTextLineHeight() - size) / 2;
    ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(at.x, top), ImVec2(at.x + size, top + size), colour,
                                              size * 0.2f);
    ImGui::Dummy(ImVec2(size, ImGui::GetTextLineHeight()));
    ImGui::SameLine(0, style.em * 0.35f);
    ImGui::TextDisabled("%s", name);
}

void draw_star(ImDrawList* list, ImVec2 at, float radius, ImU32 fill, ImU32 edge) {
    ImVec2 points[10];
    for (int i = 0; i < 10; ++i) {
        const float r = i % 2 == 0 ? radius : 0.45f * radius;
        const float angle = -1.5708f + 0.62832f * static_cast<float>(i);
        points[i] = {at.x + r * std::cos(angle), at.y + r * std::sin(angle)};
    }
    list->AddConcavePolyFilled(points, 10, fill);
    list->AddPolyline(points, 10, edge, 1.5f, ImDrawFlags_Closed);
}

void draw_diamond(ImDrawList* list, ImVec2 at, float r, ImU32 fill, ImU32 edge, float edge_width) {
    const ImVec2 points[] = {{at.x, at.y - r}, {at.x + r, at.y}, {at.x, at.y + r}, {at.x - r, at.y}};
    list->AddConvexPolyFilled(points, 4, fill);
    list->AddPolyline(points, 4, edge, edge_width, ImDrawFlags_Closed);
}

void draw_shape(ImDrawList* list, int shape, ImVec2 at, float r, ImU32 colour) {
    if (shape % 4 == 0) list->AddCircleFilled(at, r, colour);
    if (shape % 4 == 1) list->AddRectFilled({at.x - r, at.y - r}, {at.x + r, at.y + r}, colour);
    if (shape % 4 == 2)
        list->AddTriangleFilled({at.x, at.y - 1.3f * r}, {at.x + 1.2f * r, at.y + r},
                                {at.x - 1.2f * r, at.y + r}, colour);
    if (shape % 4 == 3) draw_diamond(list, at, 1.3f * r, colour, colour, 1);
}

void set_value_ticks(const std::vector<double>& values, const ValueRange& range, bool logarithmic,
                     float width) {
    std::vector<float> places, widths;
    std::vector<std::string> labels;
    for (const double value : values) {
        const double share = logarithmic ? std::log(value / range.low) / std::log(range.high / range.low)
                                         : (value - range.low) / (range.high - range.low);
        labels.push_back(fmt::format("{:g}", value));
        places.push_back(width * static_cast<float>(share));
        widths.push_back(ImGui::CalcTextSize(labels.back().c_str()).x);
    }
    const std::vector<bool> fits = fitting_labels(places, widths, 0.4f * ImGui::GetFontSize());
    std::vector<const char*> texts;
    for (std::size_t i = 0; i < labels.size(); ++i) texts.push_back(fits[i] ? labels[i].c_str() : "");
    ImPlot::SetupAxisTicks(ImAxis_X1, values.data(), static_cast<int>(values.size()), texts.data());
}

void draw_hatching(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, float spacing) {
    const float height = max.y - min.y;
    list->PushClipRect(min, max, true);
    for (float x = min.x - height; x < max.x; x += spacing)
        list->AddLine(ImVec2(x, max.y), ImVec2(x + height, min.y), colour, 1.0f);
    list->PopClipRect();
}

}  // namespace draftscope
