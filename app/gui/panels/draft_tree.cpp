#include "app/gui/models/draft_tree.h"

#include <fmt/format.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/round_phases.h"
#include "app/gui/panels/widgets.h"

namespace draftscope {
namespace {

struct TreeState {
    RebuildThrottle rebuild;
    DraftTreeModel model;
    bool moved = false;                   ///< the user moved the view; until then it fits the window
    ImVec2 scale{0, 0};                   ///< pixels per column and per row
    ImVec2 origin{0, 0};                  ///< top left of the tree, relative to the canvas
    float rows = 0;                       ///< maximum number of rows of a round in flight so far
    std::optional<std::size_t> selected;  ///< index into model.nodes
    SettingReplay what_if;                ///< of the popup
    std::optional<std::size_t> shown;     ///< of JobStatus::what_ifs; absent = the round as it was decoded
    std::size_t what_ifs = 0;             ///< of the selected round, in the last frame
    bool shows_newest = false;            ///< the next what-if is shown when it comes
};

struct Canvas {
    ImVec2 min, max;
    float header = 0;  ///< height of the strip with the depths
    ImDrawList* list = nullptr;
};

constexpr float readable_row = 0.95f;               // em: of a growing tree, while it fits
constexpr float min_text_row = 0.62f;               // em: below it, only the accepted path has labels
constexpr float path_font = 0.8f, path_box = 1.3f;  // em: minimum label size and height of its boxes
constexpr float max_path_rows = 40;

void fit(TreeState& state, const Canvas& canvas, float em) {
    const float width = canvas.max.x - canvas.min.x - 1.2f * em;
    const float height = canvas.max.y - canvas.min.y - canvas.header - 1.0f * em;
    const DraftTreeModel& model = state.model;
    const auto columns = static_cast<float>(std::max(model.max_depth, model.reserved_depth) + 1);
    state.scale.x = std::min(width / columns, 13 * em);
    const auto scale_rows = [&] {
        if (model.growing) state.rows = std::max({state.rows, model.height, model.reserved_rows});
        float row = height / std::max({state.rows, model.height, 1.0f});
        // Labels come first: a tree whose later levels need smaller rows shrinks when they come.
        if (model.growing)
            row = std::max(row, std::min(height / std::max(model.height, 1.0f), readable_row * em));
        state.scale.y = std::min(row, 2.8f * em);
    };
    if (!model.growing) state.rows = 0;
    scale_rows();
    // If rows are low, the boxes of the accepted path get several rows, so that their labels keep their size.
    // A growing tree has no such path.
    for (int i = 0; i < 5 && !model.growing; ++i) {
        scale_rows();
        const float rows = std::clamp(path_box * em / state.scale.y, 1.0f, max_path_rows);
        if (std::abs(rows - model.path_rows) < 0.05f * rows) break;
        arrange_tree(state.model, rows);
    }
    state.origin.x = 0.6f * em;
    state.origin.y = canvas.header + 0.5f * em;
    // A growing tree is aligned to the top, so that later levels do not move it.
    if (!model.growing) state.origin.y += std::max(0.0f, (height - state.scale.y * model.height) / 2);
}

ImVec2 position(const TreeState& state, const Canvas& canvas, const TreeNode& node) {
    return {canvas.min.x + state.origin.x + static_cast<float>(node.depth) * state.scale.x,
            canvas.min.y + state.origin.y + node.y * state.scale.y};
}

/// A node's box at the current zoom.
struct NodeBox {
    ImVec2 min, max;
    float font = 0;  ///< 0 = no text
    ImVec2 left() const { return {min.x, (min.y + max.y) / 2}; }
    ImVec2 right() const { return {max.x, (min.y + max.y) / 2}; }
};

NodeBox make_box(const TreeState& state, const Canvas& canvas, const Style& style, const TreeNode& node) {
    const ImVec2 at = position(state, canvas, node);
    const float em = style.em;
    float font = std::min(0.78f * state.scale.y, 0.95f * em);
    // Limited to the rows reserved for it, so that it covers no other node.
    if (is_on_path(node)) font = std::min(std::max(font, path_font * em), node.rows * state.scale.y / 1.5f);
    if ((state.scale.y < min_text_row * em && !is_on_path(node)) || font < 0.45f * em) {
        const float radius = std::clamp(0.32f * node.rows * state.scale.y, 1.5f, 0.3f * em);
        return {{at.x, at.y - radius}, {at.x + 2 * radius, at.y + radius}, 0};
    }
    const float room = std::max(state.scale.x - 2.4f * em, std::min(2.5f * em, state.scale.x - 0.5f * em));
    const float text = style.mono->CalcTextSizeA(font, 1e9f, 0, node.label.c_str()).x;
    const float width = std::min(text + 0.9f * font, room), half = 0.68f * font;
    return {{at.x, at.y - half}, {at.x + width, at.y + half}, font};
}

/// How nodes of a kind are drawn; node_look() lists them in the order of TreeNodeKind.
struct NodeLook {
    ImU32 fill = 0, border = 0, text = 0;
    float weight = 1;
};

NodeLook node_look(const Palette& c, TreeNodeKind kind) {
    const NodeLook looks[] = {{to_im(c.raised), to_im(c.text_dim), to_im(c.text), 1.5f},
                              {to_im(c.good), to_im(c.good), to_im(c.text_on_data), 2},
                              {to_im(c.panel), to_im(c.text_dim, 0.55f), to_im(c.text), 1},
                              {to_im(c.panel), to_im(c.accent), to_im(c.text), 1},
                              {to_im(c.target), to_im(c.target), to_im(c.text_on_data), 2},
                              {to_im(c.panel, 0), to_im(c.bad, 0.6f), to_im(c.text_dim), 1}};
    return looks[static_cast<std::size_t>(kind)];
}

/// Cuts a text with an ellipsis at the end of the box. The font is monospaced.
std::string cut_to_width(const Style& style, const std::string& text, float font, float room) {
    const float width = style.mono->CalcTextSizeA(font, 1e9f, 0, text.c_str()).x;
    if (width <= room + 0.5f) return text;
    const float one = style.mono->CalcTextSizeA(font, 1e9f, 0, "0").x;
    const int fits = std::max(static_cast<int>(room / one) - 1, 1);
    std::size_t end = 0;
    for (int n = 0; end < text.size(); ++end)
        if ((static_cast<unsigned char>(text[end]) & 0xC0u) != 0x80u && n++ == fits) break;
    return text.substr(0, end) + "\xE2\x80\xA6";
}

/// Draws the target's token with cut corners, recognisable without colour.
void draw_hexagon(ImDrawList* list, const NodeBox& box, ImU32 fill) {
    const float cut = (box.max.y - box.min.y) / 2;
    const ImVec2 points[] = {{box.min.x, box.min.y + cut},        {box.min.x + cut * 0.8f, box.min.y},
                             {box.max.x - cut * 0.8f, box.min.y}, {box.max.x, box.min.y + cut},
                             {box.max.x - cut * 0.8f, box.max.y}, {box.min.x + cut * 0.8f, box.max.y}};
    list->AddConvexPolyFilled(points, 6, fill);
}

void draw_node(const Canvas& canvas, const Style& style, const TreeNode& node, const NodeBox& box,
               bool selected, bool marked) {
    NodeLook look = node_look(style.colours, node.kind);
    if (node.gained && node.kind != TreeNodeKind::accepted)
        look.border = to_im(style.colours.good), look.weight = 2;
    ImDrawList* list = canvas.list;
    const float rounding =
        node.kind == TreeNodeKind::root ? 0.15f * style.em : 0.4f * (box.max.y - box.min.y);
    if (selected || marked) {
        const float grow = 0.22f * style.em;
        list->AddRect({box.min.x - grow, box.min.y - grow}, {box.max.x + grow, box.max.y + grow},
                      to_im(style.colours.accent, selected ? 1.0f : 0.55f), rounding + grow, 2.0f);
    }
    if (node.kind == TreeNodeKind::target) {
        draw_hexagon(list, box, look.fill);
    } else {
        list->AddRectFilled(box.min, box.max, look.fill, rounding);
        list->AddRect(box.min, box.max, look.border, rounding, node.beam ? 2 : look.weight);
    }
    // The next level's edges begin at the dot.
    if (node.beam) list->AddCircleFilled(box.right(), 0.24f * style.em, to_im(style.colours.accent));
    if (box.font <= 0) return;
    const float pad = 0.45f * box.font;
    const std::string text = cut_to_width(style, node.label, box.font, box.max.x - box.min.x - 2 * pad);
    list->AddText(style.mono, box.font, {box.min.x + pad, (box.min.y + box.max.y) / 2 - 0.6f * box.font},
                  look.text, text.c_str());
}

/// Draws a warning sign on the node's corner, and a text below if it fits.
void draw_out_of_vocabulary(const Canvas& canvas, const Style& style, const NodeBox& box, float row) {
    const float s = 0.9f * style.em;
    const ImVec2 at(box.max.x - 0.25f * s, box.min.y - 0.05f * s);
    const ImU32 ground = to_im(style.colours.panel), colour = to_im(style.colours.warn);
    const float g = 0.16f * style.em;
    canvas.list->AddTriangleFilled({at.x - g, at.y + s / 2 + g}, {at.x + s / 2, at.y - s / 2 - 1.5f * g},
                                   {at.x + s + g, at.y + s / 2 + g}, ground);
    canvas.list->AddTriangleFilled({at.x, at.y + s / 2}, {at.x + s / 2, at.y - s / 2},
                                   {at.x + s, at.y + s / 2}, colour);
    canvas.list->AddText(style.ui_bold, 0.75f * style.em,
                         {at.x + s / 2 - 0.1f * style.em, at.y - 0.34f * style.em}, ground, "!");
    if (row > 2.1f * style.em)
        canvas.list->AddText(style.ui, 0.75f * style.em, {box.min.x, box.max.y + 0.1f * style.em}, colour,
                             "out of vocabulary");
}

void draw_edge(const Canvas& canvas, const Style& style, const TreeState& state, const NodeBox& from,
               const NodeBox& to, const TreeNode& child) {
    const bool followed = child.kind == TreeNodeKind::accepted || child.kind == TreeNodeKind::target;
    const ImVec2 a = from.right(), b = to.left();
    if (std::max(a.x, b.x) < canvas.min.x || std::min(a.x, b.x) > canvas.max.x) return;
    const float bend = 0.5f * (b.x - a.x);
    const bool known = !std::isnan(child.edge_probability);
    const auto p = static_cast<float>(std::clamp(known ? child.edge_probability : 0.0, 0.0, 1.0));
    ImU32 colour = to_im(style.colours.text_dim, 0.25f + 0.35f * p);
    float weight = 1.0f + 1.0f * p;
    if (followed) {
        colour = to_im(child.kind == TreeNodeKind::target ? style.colours.target : style.colours.good);
        weight = 0.2f * style.em;
    }
    if (state.scale.y < 0.3f * style.em && !followed)
        canvas.list->AddLine(a, b, colour, 1);
    else
        canvas.list->AddBezierCubic(a, {a.x + bend, a.y}, {b.x - bend, b.y}, b, colour, weight);
    const float font = std::min(0.72f * style.em, 0.6f * state.scale.y);
    if (font < 0.5f * style.em && !followed) return;
    const std::string text = known ? fmt::format("{:.2f}", child.edge_probability) : "-";
    const float size = std::max(font, 0.62f * style.em);
    const ImVec2 extent = style.ui->CalcTextSizeA(size, 1e9f, 0, text.c_str());
    if (extent.x + 0.5f * style.em > b.x - a.x) return;  // it would overlap the parent's box
    const ImVec2 at(b.x - extent.x - 0.3f * style.em, b.y - extent.y / 2);
    canvas.list->AddRectFilled({at.x - 2, at.y}, {at.x + extent.x + 2, at.y + extent.y},
                               to_im(style.colours.panel, 0.9f), 2);
    canvas.list->AddText(style.ui, size, at, followed ? colour : to_im(style.colours.text_dim), text.c_str());
}

void draw_columns(const Canvas& canvas, const Style& style, const TreeState& state) {
    const float size = 0.8f * style.em;
    for (int depth = 0; depth <= std::max(state.model.max_depth, state.model.reserved_depth); ++depth) {
        const float x = canvas.min.x + state.origin.x + static_cast<float>(depth) * state.scale.x;
        if (x > canvas.max.x || x + state.scale.x < canvas.min.x) continue;
        const std::string text = depth == 0 ? "root" : fmt::format("depth {}", depth);
        if (depth % 2 == 1)
            canvas.list->AddRectFilled({x - 1.55f * style.em, canvas.min.y},
                                       {x + state.scale.x - 1.55f * style.em, canvas.max.y},
                                       to_im(style.colours.raised, 0.28f));
        canvas.list->AddText(style.ui, size, {x, canvas.min.y + 0.25f * style.em},
                             to_im(style.colours.text_dim), text.c_str());
    }
}

void draw_top_table(const Style& style, const TreeNode& node) {
    if (node.top.empty()) return;
    ImGui::Spacing();
    ImGui::TextDisabled("the target's most likely next tokens");
    if (!ImGui::BeginTable("top", 3, ImGuiTableFlags_SizingFixedFit)) return;
    for (const TargetCandidate& choice : node.top) {
        begin_row(std::to_string(choice.rank + 1));
        ImGui::TableNextColumn();
        draw_in_font(style.mono, choice.text);
        ImGui::TableNextColumn();
        const ImVec2 at = ImGui::GetCursorScreenPos();
        const float width = 5 * style.em * static_cast<float>(choice.probability);
        const bool emitted = choice.token_id == node.next_token_id;
        ImGui::GetWindowDrawList()->AddRectFilled(
            at, {at.x + width, at.y + ImGui::GetTextLineHeight()},
            to_im(emitted ? style.colours.target : style.colours.raised_hot, 0.8f), 2);
        ImGui::Text("%.3f%s", choice.probability, emitted ? "  emitted" : "");
        ImGui::SameLine(0, std::max(0.0f, 6 * style.em - ImGui::CalcTextSize("0.000  emitted").x));
        ImGui::Dummy({1, 1});
    }
    ImGui::EndTable();
}

void show_tooltip(const Style& style, const DraftTreeModel& model, std::size_t index) {
    if (!ImGui::BeginTooltip()) return;
    const std::vector<std::string> lines = describe_node(model, index);
    draw_in_font(style.ui_bold, lines[0]);
    if (!lines[1].empty()) ImGui::TextUnformatted(lines[1].c_str());
    draw_top_table(style, model.nodes[index]);
    ImGui::EndTooltip();
}

void draw_legend_item(const Style& style, TreeNodeKind kind, const char* text, bool gained = false,
                      bool beam = false) {
    TreeNode node;
    node.kind = kind;
    node.gained = gained;
    node.beam = beam;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float h = ImGui::GetTextLineHeight();
    const NodeBox box{{at.x, at.y + 0.15f * h}, {at.x + 1.4f * h, at.y + 0.85f * h}, 0};
    Canvas canvas;
    canvas.list = ImGui::GetWindowDrawList();
    draw_node(canvas, style, node, box, false, false);
    ImGui::Dummy({1.4f * h, h});
    ImGui::SameLine(0, (beam ? 0.6f : 0.35f) * style.em);
    ImGui::TextUnformatted(text);
    ImGui::SameLine(0, 1.1f * style.em);
}

void draw_detail_strip(const Style& style, TreeState& state, bool picture) {
    if (state.selected && *state.selected < state.model.nodes.size()) {
        const std::vector<std::string> lines = describe_node(state.model, *state.selected);
        ImGui::TextUnformatted(lines[0].c_str());
        ImGui::SameLine(0, 1.2f * style.em);
        ImGui::TextDisabled("%s", lines[1].c_str());
    } else {
        const TextColour colour(style.colours.text_dim);
        const auto has = [&](TreeNodeKind kind) {
            return std::ranges::find(state.model.nodes, kind, &TreeNode::kind) != state.model.nodes.end();
        };
        draw_legend_item(style, TreeNodeKind::accepted, "accepted");
        draw_legend_item(style, TreeNodeKind::rejected, state.model.live ? "drafted" : "rejected");
        if (!state.model.live && has(TreeNodeKind::pending))
            draw_legend_item(style, TreeNodeKind::pending, "candidate, not drafted");
        if (std::ranges::any_of(state.model.nodes, &TreeNode::beam))
            draw_legend_item(style, TreeNodeKind::pending, "drafted from next", false, true);
        draw_legend_item(style, TreeNodeKind::target, "from the target");
        if (std::ranges::any_of(state.model.nodes, &TreeNode::gained))
            draw_legend_item(style, TreeNodeKind::rejected, "gained", true);
        if (has(TreeNodeKind::lost)) draw_legend_item(style, TreeNodeKind::lost, "lost");
        const char* words = picture ? "edge: drafter's p" : "edge: drafter's p   zoom: wheel, fit: F";
        const float room = ImGui::GetContentRegionAvail().x;
        if (ImGui::CalcTextSize(words).x > room) words = "edge: drafter's p";
        if (ImGui::CalcTextSize(words).x <= room)
            ImGui::TextUnformatted(words);
        else
            ImGui::NewLine();
    }
}

void navigate(TreeState& state, const Canvas& canvas, bool fit_now, float em) {
    const ImGuiIO& io = ImGui::GetIO();
    const bool hovered = ImGui::IsItemHovered();
    if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, 3.0f)) {
        state.origin.x += io.MouseDelta.x;
        state.origin.y += io.MouseDelta.y;
        state.moved = true;
    }
    if (hovered && io.MouseWheel != 0) {
        const float factor = std::pow(1.15f, io.MouseWheel);
        const float sx = std::clamp(state.scale.x * factor, 1.5f * em, 40 * em) / state.scale.x;
        const float sy = std::clamp(state.scale.y * factor, 1.0f, 6 * em) / state.scale.y;
        state.origin.x = io.MousePos.x - canvas.min.x - (io.MousePos.x - canvas.min.x - state.origin.x) * sx;
        state.origin.y = io.MousePos.y - canvas.min.y - (io.MousePos.y - canvas.min.y - state.origin.y) * sy;
        state.scale.x *= sx;
        state.scale.y *= sy;
        state.moved = true;
    }
    if (fit_now || (hovered && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left))) state.moved = false;
    if (!state.moved) fit(state, canvas, em);
}

std::optional<std::size_t> draw_tree(const Style& style, TreeState& state, const Canvas& canvas,
                                     TokenId marked) {
    const DraftTreeModel& model = state.model;
    std::vector<NodeBox> boxes;
    boxes.reserve(model.nodes.size());
    for (const TreeNode& node : model.nodes) boxes.push_back(make_box(state, canvas, style, node));
    draw_columns(canvas, style, state);
    for (const bool followed : {false, true})
        for (std::size_t i = 0; i < model.nodes.size(); ++i)
            if (const TreeNode& node = model.nodes[i]; node.parent >= 0 && is_on_path(node) == followed)
                draw_edge(canvas, style, state, boxes[node.parent], boxes[i], node);
    std::optional<std::size_t> hovered;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const bool inside = ImGui::IsItemHovered();
    for (const bool followed : {false, true})
        for (std::size_t i = 0; i < model.nodes.size(); ++i) {
            const TreeNode& node = model.nodes[i];
            const NodeBox& box = boxes[i];
            if (is_on_path(node) != followed) continue;
            if (box.max.y < canvas.min.y || box.min.y > canvas.max.y) continue;
            draw_node(canvas, style, node, box, state.selected == i,
                      marked != no_token && node.token_id == marked);
            if (node.kind == TreeNodeKind::target && node.covered == false)
                draw_out_of_vocabulary(canvas, style, box, state.scale.y);
            const float slack = std::max(0.0f, 0.35f * style.em - (box.max.y - box.min.y) / 2);
            if (inside && mouse.x >= box.min.x - slack && mouse.x <= box.max.x + slack &&
                mouse.y >= box.min.y - slack && mouse.y <= box.max.y + slack)
                hovered = i;
        }
    return hovered;
}

void headline(const Style& style, const DraftTreeModel& model) {
    const bool rejected = model.headline.starts_with("rejected");
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float h = ImGui::GetTextLineHeight();
    ImGui::GetWindowDrawList()->AddRectFilled(at, {at.x + 0.25f * style.em, at.y + h},
                                              to_im(model.live ? style.colours.accent
                                                    : rejected ? style.colours.bad
                                                               : style.colours.good));
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 0.65f * style.em);
    draw_wrapped(style.colours.text, model.headline);
}

/// Returns the selected round; null in flight, or without one.
const RoundRow* selected_round(const PanelContext& c) {
    const bool any =
        !in_flight_selected(c.snapshot, c.ui) && c.ui.round && *c.ui.round < c.snapshot.rounds.size();
    return any ? &c.snapshot.rounds[*c.ui.round].row : nullptr;
}

/// Returns the places of the rounds that were drafted again from the selected round's text.
std::vector<std::size_t> what_ifs_of(const PanelContext& c) {
    std::vector<std::size_t> out;
    const RoundRow* round = selected_round(c);
    for (std::size_t i = 0; round != nullptr && i < c.status.what_ifs.size(); ++i) {
        const WhatIf& wanted = c.status.what_ifs[i].wanted;
        if (wanted.source == c.snapshot.source && wanted.run_id == round->run_id &&
            wanted.prompt_id == round->prompt_id && wanted.context_length == round->context_length)
            out.push_back(i);
    }
    return out;
}

std::string what_if_name(const WhatIf& wanted) {
    const SettingReplay& setting = wanted.setting;
    return fmt::format("{}{}{}", short_name(setting.drafter),
                       setting.head.empty() ? "" : " x " + setting.head,
                       setting.tree.empty() ? "" : " @ " + setting.tree);
}

/// Asks for the setting to draft the round with again.
void draw_what_if_popup(PanelContext& c, TreeState& state, const RoundRow& round) {
    if (!ImGui::BeginPopup("##what_if")) return;
    SettingReplay& setting = state.what_if;
    ImGui::TextUnformatted("Draft this round again, from the same text, with");
    ImGui::SetNextItemWidth(16 * c.style.em);
    ImGui::InputText("drafter", &setting.drafter);
    ImGui::SetNextItemWidth(16 * c.style.em);
    const bool lists_heads = ImGui::BeginCombo("head", setting.head.c_str());
    std::vector<std::string> usable;
    for (const HeadChoice& head : c.status.heads) {
        const bool fits = why_not(head, setting.drafter).empty();
        if (fits) usable.push_back(head.spec);
        if (lists_heads && ImGui::Selectable(head.spec.c_str(), head.spec == setting.head,
                                             fits ? 0 : ImGuiSelectableFlags_Disabled))
            setting.head = head.spec;
    }
    if (lists_heads) ImGui::EndCombo();
    ImGui::SetNextItemWidth(16 * c.style.em);
    ImGui::InputTextWithHint("tree", "chain=3", &setting.tree);
    const bool idle = c.status.state == JobState::idle;
    const bool one = icon_button(c.style, Icon::play, "Draft##what_if", idle, true);
    ImGui::SameLine();
    const bool all_heads =
        icon_button(c.style, Icon::play, "All heads##what_if", idle && !usable.empty(), false);
    show_tooltip(c.style, "Which heads would have had the target's tokens.");
    if (one || all_heads) {
        setting.model = c.config.model;
        setting.artefacts = c.config.artefacts;
        setting.threads = c.config.threads;
        const bool uses_head = find_traits(c.status.drafters, setting.drafter).uses_head;
        WhatIf wanted{round.run_id, round.prompt_id, round.context_length, setting, "", {}};
        wanted.source = c.snapshot.source;
        if (const RunRow* run = c.snapshot.run(round.run_id); run != nullptr)
            wanted.precision = run->precision;
        if (!uses_head) wanted.setting.head.clear();
        if (all_heads) wanted.heads = std::move(usable);
        c.commands.emplace_back(std::in_place_type<CmdWhatIf>, CmdWhatIf{std::move(wanted)});
        state.shows_newest = true;
        ImGui::CloseCurrentPopup();
    }
    draw_hint(c.style, "It needs the run's own model, which is the session's.");
    ImGui::EndPopup();
}

/// Draws the button for a what-if, and the choice between the round's own tree and those of what-ifs.
void draw_what_if(PanelContext& c, TreeState& state) {
    const RoundRow* round = selected_round(c);
    if (round == nullptr || c.picture) return;
    const std::vector<std::size_t> places = what_ifs_of(c);
    if (std::exchange(state.what_ifs, places.size()) < places.size() &&
        std::exchange(state.shows_newest, false))
        state.shown = places.back();
    if (ImGui::SmallButton("What if...")) {
        const RunRow* run = c.snapshot.run(round->run_id);
        if (state.what_if.drafter.empty() && run != nullptr)
            state.what_if.drafter = run->drafter, state.what_if.head = run->head,
            state.what_if.tree = run->tree;
        ImGui::OpenPopup("##what_if");
    }
    show_tooltip(c.style, "Another head, drafter or tree for this round, from the same text.");
    draw_what_if_popup(c, state, *round);
    if (places.empty()) return;
    ImGui::SameLine();
    ImGui::SetNextItemWidth(-FLT_MIN);
    const auto text = [&](std::size_t i) {
        const WhatIfResult& result = c.status.what_ifs[i];
        return fmt::format("what if: {}: {} accepted", what_if_name(result.wanted),
                           result.snapshot->rounds[0].row.accepted);
    };
    const std::string now = state.shown ? text(*state.shown) : "as decoded";
    if (!ImGui::BeginCombo("##trees", now.c_str())) return;
    if (ImGui::Selectable("as decoded", !state.shown)) state.shown.reset();
    for (const std::size_t i : places)
        if (ImGui::Selectable(fmt::format("{}##{}", text(i), i).c_str(), state.shown == i)) state.shown = i;
    ImGui::EndCombo();
}

/// Builds the selected round's tree, or that of a what-if with what it gained and lost.
DraftTreeModel build_shown_tree(const PanelContext& c, const TreeState& state, bool live) {
    if (live) return build_live_draft_tree(c.snapshot);
    DraftTreeModel own = build_draft_tree(c.snapshot, c.ui.round.value_or(~std::size_t{0}));
    if (!state.shown) return own;
    const WhatIfResult& result = c.status.what_ifs[*state.shown];
    DraftTreeModel model = build_draft_tree(*result.snapshot, 0);
    if (!model.empty_text.empty()) return model;
    model.headline = fmt::format("what if {}: {}; {}", what_if_name(result.wanted),
                                 to_text(compare_trees(model, own)), model.headline);
    return model;
}

}  // namespace

void draw_draft_tree(PanelContext& context) {
    TreeState& state = context.panel_state.get<TreeState>();
    const Snapshot& snapshot = context.snapshot;
    const Style& style = context.style;
    const bool live = in_flight_selected(snapshot, context.ui);
    const std::vector<std::size_t> places = what_ifs_of(context);
    if (state.shown && std::ranges::find(places, *state.shown) == places.end()) state.shown.reset();
    const std::uint64_t key =
        (live ? ~std::uint64_t{0} : context.ui.round.value_or(~std::size_t{0} - 1)) * 31 +
        (state.shown ? *state.shown + 1 : 0);
    state.rebuild.update(context, key, [&] {
        const std::size_t before = state.model.nodes.size();
        state.model = build_shown_tree(context, state, live);
        replace_missing_glyphs(state.model, [&](char32_t code) { return style.has_glyph(code); });
        if (state.model.nodes.size() != before) state.selected.reset();
    });
    if (!state.model.empty_text.empty()) return draw_empty_text(style, state.model.empty_text);

    headline(style, state.model);
    draw_what_if(context, state);
    const float strip = (state.shown ? 3 : 1) * ImGui::GetTextLineHeightWithSpacing() + 0.2f * style.em;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const ImVec2 size(std::max(room.x, 4 * style.em), std::max(room.y - strip, 4 * style.em));
    Canvas canvas;
    canvas.min = ImGui::GetCursorScreenPos();
    canvas.max = {canvas.min.x + size.x, canvas.min.y + size.y};
    canvas.header = 1.3f * style.em;
    canvas.list = ImGui::GetWindowDrawList();
    ImGui::InvisibleButton("tree", size);
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    navigate(state, canvas, context.ui.fit_requested, style.em);
    canvas.list->PushClipRect(canvas.min, canvas.max, true);
    const std::optional<std::size_t> hovered = draw_tree(style, state, canvas, context.ui.hovered_token);
    canvas.list->PopClipRect();
    if (hovered) {
        context.ui.hovered_token = state.model.nodes[*hovered].token_id;
        if (!ImGui::IsMouseDown(ImGuiMouseButton_Left)) show_tooltip(style, state.model, *hovered);
    }
    if (ImGui::IsItemHovered() && ImGui::IsMouseReleased(ImGuiMouseButton_Left) &&
        ImGui::GetIO().MouseDragMaxDistanceSqr[ImGuiMouseButton_Left] < 9)
        state.selected = hovered;
    if (state.shown)
        draw_draft_phases(style, step_phases(snapshot, snapshot.rounds[*context.ui.round].step_index),
                          step_phases(*context.status.what_ifs[*state.shown].snapshot, 0));
    draw_detail_strip(style, state, context.picture);
}

}  // namespace draftscope
