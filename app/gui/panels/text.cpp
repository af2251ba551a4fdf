#include "app/gui/models/text.h"

#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/panels/widgets.h"
#include "capture/token_text.h"

/// Text panel: the dimmed prompt and the output, with tokens coloured by origin.
namespace draftscope {
namespace {

constexpr float line_spacing = 1.38f;

struct TextState {
    std::uint64_t data_key = 0;
    std::string source;  ///< of the snapshot
    RowId prompt_id = -1;
    float width = 0, em = 0;
    TextModel model;
    std::vector<TextRun> runs;
    std::string find;
    std::vector<std::size_t> found;
    std::size_t found_at = 0;
    bool finding = false, scroll_to_found = false;
    std::optional<std::size_t> shown_round;
    float height = 0;       ///< of the output
    bool to_start = false;  ///< another prompt is shown: from its first line on
};

/// In whole pixels, so that a scrolled view starts with a whole line.
float text_line_height(const Style& style) {
    return std::round(style.em * line_spacing);
}

void update_found(const Style& style, TextState& state) {
    const auto has_glyph = [&](char32_t code) { return style.has_glyph(code); };
    state.found = find_text(state.model, replace_missing_glyphs(state.find, has_glyph));
}

void rebuild(PanelContext& c, TextState& state, float width) {
    const RowId prompt = prompt_to_show(c.snapshot, c.ui);
    const bool stale = state.data_key != c.ui.data_key || state.prompt_id != prompt;
    if (stale) {
        state.model = build_text(c.snapshot, prompt);
        replace_missing_glyphs(state.model, [&](char32_t code) { return c.style.has_glyph(code); });
        state.data_key = c.ui.data_key;
        state.to_start |= state.prompt_id != prompt;
        if (std::exchange(state.source, c.snapshot.source) != c.snapshot.source) state.shown_round.reset();
        state.prompt_id = prompt;
        update_found(c.style, state);
    }
    if (!stale && state.width == width && state.em == c.style.em) return;
    if (state.width != width || state.em != c.style.em) state.shown_round.reset();
    state.width = width;
    state.em = c.style.em;
    ImGui::PushFont(c.style.mono, 0.0f);
    state.runs = lay_out_text(state.model.pieces, width, [](std::string_view text) {
        return ImGui::CalcTextSize(text.data(), text.data() + text.size()).x;
    });
    ImGui::PopFont();
}

ImU32 ground_colour(const Style& style, const TextPiece& piece) {
    if (piece.source == TokenSource::prefill) return to_im(style.colours.prefill, 0.28f);
    if (piece.source == TokenSource::bonus) return to_im(style.colours.target, 0.26f);
    // The ground is stronger for deeper tokens.
    return to_im(style.colours.good, std::min(0.16f + 0.09f * float(piece.depth), 0.62f));
}

void draw_dotted_underline(ImDrawList* list, ImVec2 from, float width, ImU32 colour, float em) {
    for (float x = 0; x < width; x += em * 0.3f)
        list->AddLine(ImVec2(from.x + x, from.y), ImVec2(from.x + std::min(x + em * 0.17f, width), from.y),
                      colour, 2.0f);
}

/// Stays on the current line if the next entry fits.
void next_entry(const Style& style, const char* name) {
    const float needed = ImGui::CalcTextSize(name).x + style.em * 1.3f;
    ImGui::SameLine(0, style.em * 0.8f);
    if (ImGui::GetContentRegionAvail().x < needed) ImGui::NewLine();
}

void draw_legend(const Style& style) {
    draw_legend_entry(style, to_im(style.colours.good, 0.45f), "drafted");
    show_tooltip(style, "Drafted and accepted tokens. The colour is stronger for deeper nodes of the tree.");
    next_entry(style, "from the target");
    draw_legend_entry(style, to_im(style.colours.target, 0.45f), "from the target");
    show_tooltip(style, "The target adds one token at the end of every round.");
    next_entry(style, "out of vocabulary");
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = style.em * 0.9f;
    draw_dotted_underline(ImGui::GetWindowDrawList(), ImVec2(at.x, at.y + ImGui::GetTextLineHeight() * 0.92f),
                          width, to_im(style.colours.warn), style.em);
    ImGui::Dummy(ImVec2(width, ImGui::GetTextLineHeight()));
    ImGui::SameLine(0, style.em * 0.35f);
    ImGui::TextDisabled("out of vocabulary");
    show_tooltip(style,
                 "Dotted underline: the token is not in the head's vocabulary and could not be drafted.");
}

struct Cursor {
    ImVec2 origin;
    float line_height;
    bool window_hovered;
};

/// Draws one token's part of a run's box. Returns true if it is under the mouse.
bool draw_part(PanelContext& c, const TextPiece& piece, ImVec2 min, ImVec2 max, float pad, bool over) {
    const Style& style = c.style;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 box_min(min.x, min.y + pad * 0.35f), box_max(max.x, max.y - pad * 0.35f);
    if (!piece.is_prompt()) list->AddRectFilled(box_min, box_max, ground_colour(style, piece), 2.0f);
    const bool hovered = over && ImGui::IsMouseHoveringRect(min, max);
    if (hovered || (piece.token_id != no_token && piece.token_id == c.ui.hovered_token))
        list->AddRect(box_min, box_max, to_im(style.colours.text_dim), 2.0f);
    if (piece.round_index && c.ui.round == piece.round_index)
        for (const float y : {box_min.y, box_max.y})
            list->AddRectFilled({min.x, y - 1}, {max.x + 1, y + 1}, to_im(style.colours.accent));
    return hovered;
}

/// Draws one run and returns the piece under the mouse, if any. Tokens that share a character divide its box.
std::optional<std::size_t> draw_run(PanelContext& c, const TextState& state, const TextRun& run,
                                    const Cursor& cursor) {
    const TextPiece& piece = state.model.pieces[run.piece];
    const Style& style = c.style;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float mark = run.line_end && !piece.is_prompt() ? style.em * 0.7f : 0;
    const ImVec2 min(cursor.origin.x + run.x,
                     cursor.origin.y + static_cast<float>(run.line) * cursor.line_height);
    const float pad = (cursor.line_height - ImGui::GetTextLineHeight()) / 2;
    const ImVec2 max(min.x + run.width + mark, min.y + cursor.line_height);
    const char* first = piece.text.data() + run.first;
    const std::uint32_t sharing = run.first == 0 ? piece.shared_pieces : 0;
    const float shared =
        sharing == 0 ? 0 : ImGui::CalcTextSize(first, first + std::min(piece.shared_bytes, run.count)).x;
    std::optional<std::size_t> hovered;
    for (std::uint32_t i = 0; i <= sharing; ++i) {
        const auto edge = [&](std::uint32_t part) {
            return min.x + shared * static_cast<float>(part) / static_cast<float>(sharing + 1);
        };
        const std::size_t of = run.piece - sharing + i;
        const float right = i == sharing ? max.x : edge(i + 1);
        if (draw_part(c, state.model.pieces[of], {edge(i), min.y}, {right - 1, max.y}, pad,
                      cursor.window_hovered))
            hovered = of;
    }
    if (std::find(state.found.begin(), state.found.end(), run.piece) != state.found.end())
        list->AddRect({min.x, min.y + pad * 0.35f}, {max.x - 1, max.y - pad * 0.35f},
                      to_im(style.colours.warn), 2.0f, 2.0f);
    const ImU32 ink = to_im(piece.is_prompt() ? style.colours.text_dim : style.colours.text);
    list->AddText(ImVec2(min.x, min.y + pad), ink, first, first + run.count);
    if (mark > 0)
        list->AddText(style.ui, style.em * 0.85f, ImVec2(min.x + run.width + 1, min.y + pad),
                      to_im(style.colours.text_dim, 0.8f), "⏎");
    if (piece.covered == false)
        draw_dotted_underline(list, ImVec2(min.x, max.y - pad * 0.9f), run.width, to_im(style.colours.warn),
                              style.em);
    return hovered;
}

/// Marks the place where the round in flight continues.
void draw_caret(PanelContext& c, const TextState& state, const Cursor& cursor) {
    const Snapshot* flight = round_in_flight(c.snapshot, c.ui);
    if (flight == nullptr || flight->rounds[0].row.prompt_id != state.model.prompt_id) return;
    const TextRun last = state.runs.empty() ? TextRun{} : state.runs.back();
    const float x = last.line_end ? 0 : last.x + last.width;
    const int line = last.line + (last.line_end ? 1 : 0);
    const ImVec2 min(cursor.origin.x + x + 2,
                     cursor.origin.y + static_cast<float>(line) * cursor.line_height);
    const ImVec2 max(min.x + c.style.em * 0.5f, min.y + cursor.line_height * 0.9f);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(min, max,
                        to_im(c.style.colours.accent, in_flight_selected(c.snapshot, c.ui) ? 1 : 0.4f));
    if (!cursor.window_hovered || !ImGui::IsMouseHoveringRect(min, max)) return;
    ImGui::SetTooltip("the round in progress continues here");
    if (ImGui::IsMouseClicked(0)) c.ui.select_in_flight();
}

void scroll_to(const TextState& state, std::size_t piece, const Cursor& cursor) {
    for (const TextRun& run : state.runs)
        if (run.piece >= piece) {  // a piece that shares a later piece's character has no run
            const float y = static_cast<float>(run.line) * cursor.line_height;
            const float above = std::round(ImGui::GetWindowHeight() * 0.4f / cursor.line_height);
            ImGui::SetScrollY(std::max(0.0f, y - above * cursor.line_height));
            return;
        }
}

/// Scrolls to the newest line while following, otherwise to the selected round's first token.
void follow_selection(PanelContext& c, TextState& state, const Cursor& cursor) {
    if (state.to_start) ImGui::SetScrollY(0);
    if (state.scroll_to_found && !state.found.empty())
        scroll_to(state, state.found[state.found_at % state.found.size()], cursor);
    state.scroll_to_found = state.to_start = false;
    if (state.shown_round == c.ui.round) return;
    state.shown_round = c.ui.round;
    for (std::size_t i = 0; i < state.model.pieces.size(); ++i)
        if (state.model.pieces[i].round_index && state.model.pieces[i].round_index == c.ui.round) {
            scroll_to(state, i, cursor);
            return;
        }
}

void draw_pieces(PanelContext& c, TextState& state) {
    ImGui::PushFont(c.style.mono, 0.0f);
    const Cursor cursor{ImGui::GetCursorScreenPos(), text_line_height(c.style), ImGui::IsWindowHovered()};
    const int lines = state.runs.empty() ? 0 : state.runs.back().line + 1;
    const float top = ImGui::GetScrollY() - cursor.line_height,
                bottom = top + ImGui::GetWindowHeight() + cursor.line_height * 2;
    std::optional<std::size_t> hovered;
    for (const TextRun& run : state.runs) {
        const float y = static_cast<float>(run.line) * cursor.line_height;
        if (y < top || y > bottom) continue;
        if (const auto piece = draw_run(c, state, run, cursor)) hovered = piece;
    }
    draw_caret(c, state, cursor);
    ImGui::Dummy(ImVec2(state.width, static_cast<float>(lines) * cursor.line_height));
    follow_selection(c, state, cursor);
    ImGui::PopFont();
    if (!hovered || state.model.pieces[*hovered].is_prompt()) return;
    const TextPiece& piece = state.model.pieces[*hovered];
    c.ui.hovered_token = piece.token_id;
    ImGui::SetTooltip("%s", describe_piece(piece).c_str());
    if (piece.round_index && ImGui::IsMouseClicked(0)) {
        c.ui.select_round(*piece.round_index, c.snapshot.rounds.size());
        state.shown_round = c.ui.round;
    }
}

/// Goes to the next match, after the last one to another prompt's first match, and selects its round.
void go_to_next(PanelContext& c, TextState& state) {
    state.scroll_to_found = true;
    if (state.found_at + 1 < state.found.size()) {
        ++state.found_at;
    } else {
        state.found_at = 0;
        if (const auto round = find_in_other_prompts(c.snapshot, state.prompt_id, state.find)) {
            c.ui.select_round(*round, c.snapshot.rounds.size());
            return;
        }
    }
    if (state.found_at >= state.found.size()) return;
    const TextPiece& piece = state.model.pieces[state.found[state.found_at]];
    if (piece.round_index) c.ui.select_round(*piece.round_index, c.snapshot.rounds.size());
}

void draw_find(PanelContext& c, TextState& state) {
    if (c.ui.find_requested) {
        state.finding = true;
        ImGui::SetWindowFocus();
        ImGui::SetKeyboardFocusHere();
    }
    if (!state.finding) return;
    ImGui::SetNextItemWidth(c.style.em * 12);
    const bool next = ImGui::InputTextWithHint("##find", "search; Enter: next, also in other prompts",
                                               &state.find, ImGuiInputTextFlags_EnterReturnsTrue);
    if (ImGui::IsItemEdited()) {
        update_found(c.style, state);
        state.found_at = 0;
        state.scroll_to_found = true;
    }
    if (next) {
        go_to_next(c, state);
        ImGui::SetKeyboardFocusHere(-1);
    }
    ImGui::SameLine();
    ImGui::TextDisabled("%zu found", state.found.size());
    ImGui::SameLine();
    if (ImGui::SmallButton("Close") || (ImGui::IsWindowFocused() && ImGui::IsKeyPressed(ImGuiKey_Escape))) {
        state.finding = false;
        state.find.clear();
        state.found.clear();
    }
}

}  // namespace

void draw_text(PanelContext& c) {
    auto& state = c.panel_state.get<TextState>();
    draw_find(c, state);
    const float scrollbar = ImGui::GetStyle().ScrollbarSize + c.style.em * 0.3f;
    rebuild(c, state, std::max(ImGui::GetContentRegionAvail().x - scrollbar, c.style.em * 6));
    if (!state.model.empty_text.empty()) {
        draw_empty_text(c.style, state.model.empty_text);
        return;
    }
    draw_legend(c.style);
    draw_cut_text(state.model.caption, 0, c.style.colours.text_dim);
    const float line = text_line_height(c.style);
    const float room = ImGui::GetContentRegionAvail().y;
    const float height = std::max(std::floor(room / line), 1.0f) * line;
    if (std::exchange(state.height, height) != height) state.shown_round.reset();
    ImGui::BeginChild("##output", {0, height});
    // The first visible line is always whole. A later request to scroll replaces this one.
    const float whole = std::round(ImGui::GetScrollY() / line) * line;
    if (!ImGui::IsMouseDown(ImGuiMouseButton_Left) && std::abs(whole - ImGui::GetScrollY()) > 0.5f)
        ImGui::SetScrollY(whole);
    draw_pieces(c, state);
    ImGui::EndChild();
}

}  // namespace draftscope
