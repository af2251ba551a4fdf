#include "app/gui/panels/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "app/gui/models/cached_model.h"
#include "app/gui/models/compare.h"
#include "app/gui/models/text.h"
#include "app/gui/models/text_diff.h"
#include "app/gui/panels/widgets.h"
#include "capture/token_text.h"
#include "stats/compare.h"

namespace draftscope {
namespace {

struct CompareState {
    std::optional<CompareSide> a, b;
    bool force = false, by_user = false;     ///< `by_user`: the pair was chosen
    std::set<std::string> captures;          ///< with a run to choose
    std::optional<CompareChoice> requested;  ///< the last requested comparison
    bool texts = false;                      ///< the outputs are shown, not the ratios
    CapturedRound reached;                   ///< by show_other_run(), from `position` in the text
    int position = 0;
    RebuildThrottle rebuild;
    RunDiff diff;  ///< outputs of both runs
    std::size_t prompt = 0;
    CachedModel<std::vector<DiffGroup>, std::tuple<std::uint64_t, std::size_t, RowId>> groups;
};

CompareSide to_side(const CompareRun& run) {
    return {run.source, run.run_id};
}

const CompareRun* find(const std::vector<CompareRun>& runs, const std::optional<CompareSide>& side) {
    const auto found =
        std::ranges::find_if(runs, [&](const CompareRun& run) { return side == to_side(run); });
    return found == runs.end() ? nullptr : &*found;
}

/// Keeps the chosen runs while they exist and, unless the user chose them, no capture is added. Otherwise
/// chooses a new pair, or after "Try it" the shown capture's newest run and its baseline as A.
void keep_or_choose_pair(CompareState& state, const std::vector<CompareRun>& all, bool newest) {
    std::set<std::string> captures;
    for (const CompareRun& run : all) captures.insert(run.source);
    const bool stays = std::exchange(state.captures, captures) == captures || state.by_user;
    if (stays && !newest && find(all, state.a) != nullptr && find(all, state.b) != nullptr) return;
    const auto before = std::pair(state.a, state.b);
    state.a = state.b = std::nullopt;
    if (newest && !all.empty()) {
        for (const CompareRun& run : all)
            if (run.source == all.front().source) (run.baseline ? state.a : state.b) = to_side(run);
    } else if (const auto pair = first_pair(all)) {
        state.a = to_side(all[pair->first]);
        state.b = to_side(all[pair->second]);
    }
    if (before != std::pair(state.a, state.b)) state.force = state.by_user = false;
}

/// Returns an open capture; null if it has been closed.
const Snapshot* find_capture(const PanelContext& c, const std::string& source) {
    if (c.snapshot.source == source) return &c.snapshot;
    const auto found =
        std::ranges::find(c.status.others, source, [](const auto& other) { return other->source; });
    return found == c.status.others.end() ? nullptr : found->get();
}

bool shows(const PanelContext& c, const CompareSide& side) {
    return side == CompareSide{c.snapshot.source, c.ui.run_id};
}

void choose(PanelContext& c, CompareState& state, const std::vector<CompareRun>& runs) {
    const auto combo = [&](const char* id, std::optional<CompareSide>& side, float width) {
        const CompareRun* chosen = find(runs, side);
        ImGui::SetNextItemWidth(width);
        if (!ImGui::BeginCombo(id, chosen == nullptr ? "choose a run" : chosen->label.c_str())) return;
        for (const CompareRun& run : runs) {
            ImGui::PushID(&run);
            if (ImGui::Selectable(run.label.c_str(), &run == chosen)) {
                side = to_side(run);
                state.force = false;
                state.by_user = true;
                c.ui.compare_newest = false;
            }
            ImGui::PopID();
        }
        ImGui::EndCombo();
    };
    // In a narrow panel the buttons are on a second line.
    const float room = ImGui::GetContentRegionAvail().x;
    const bool one_line = room > 34 * c.style.em;
    const float buttons = one_line ? 17 * c.style.em : 0.8f * c.style.em;
    const float width = std::max(8 * c.style.em, (room - buttons) / 2);
    combo("##a", state.a, width);
    show_tooltip(c.style, "A: the reference run");
    ImGui::SameLine();
    combo("##b", state.b, width);
    show_tooltip(c.style, "B: the run compared with A");
    if (one_line) ImGui::SameLine();
    if (ImGui::Button("Swap##compare")) {
        std::swap(state.a, state.b);
        state.by_user = true;
        c.ui.compare_newest = false;
    }
    ImGui::SameLine();
    ImGui::BeginDisabled(!state.a || !state.b);
    if (ImGui::Button(state.b && shows(c, *state.b) ? "Show A###other" : "Show B###other"))
        c.ui.other_run_requested = true;
    ImGui::EndDisabled();
    show_tooltip(c.style,
                 "Shows the round of that run at the same place of the text in all panels; again: back (T).");
    ImGui::SameLine();
    if (ImGui::Button("Add capture...")) c.ui.open_other_requested = true;
    show_tooltip(c.style, "Opens a second capture to compare its runs with those of the shown capture.");
}

/// Returns the colour of a change; `none` if it is neither better nor worse.
std::uint32_t change_rgb(const Style& style, Change change, std::uint32_t none) {
    return change == Change::better ? style.colours.good : change == Change::worse ? style.colours.bad : none;
}

/// Draws the interval as a line and the ratio as a dot, hollow without an interval.
void draw_interval_cell(const Style& style, const Forest& forest, const ForestRow& row) {
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x, h = ImGui::GetTextLineHeight();
    const auto x = [&](double ratio) { return at.x + width * static_cast<float>(forest.at(ratio)); };
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (const double tick : forest.ticks)
        list->AddLine({x(tick), at.y - 1}, {x(tick), at.y + h + 1},
                      to_im(tick == 1 ? style.colours.text_dim : style.colours.line));
    ImGui::Dummy({width, h});
    if (row.ratio <= 0) return;
    const std::uint32_t rgb = change_rgb(style, row.quantity->change, style.colours.text);
    const float y = at.y + h / 2, radius = 0.22f * style.em;
    if (row.interval) {
        draw_interval_line(list, x(row.interval->first), x(row.interval->second), y, radius, to_im(rgb));
        list->AddCircleFilled({x(row.ratio), y}, radius, to_im(rgb));
    } else {
        list->AddCircle({x(row.ratio), y}, radius, to_im(rgb), 0, 1.5f);
    }
}

void draw_table(const Style& style, const Comparison& comparison) {
    const Forest forest = build_forest(comparison);
    const float foot = 2 * ImGui::GetTextLineHeightWithSpacing();
    const float room = std::max(ImGui::GetContentRegionAvail().y - foot, 6 * style.em);
    const float width = std::max(ImGui::GetContentRegionAvail().x - style.em, 52 * style.em);
    if (!ImGui::BeginTable("ratios", 7, scrolling_table_flags | sorting_flags, {0, room}, width)) return;
    ImGui::TableSetupScrollFreeze(1, 1);
    ImGui::TableSetupColumn(comparison.forced ? "FORCED" : "", ImGuiTableColumnFlags_WidthFixed);
    for (int i = 1; i < 5; ++i)
        ImGui::TableSetupColumn(compare_columns[static_cast<std::size_t>(i)],
                                ImGuiTableColumnFlags_WidthFixed | number_column);
    ImGui::TableSetupColumn("change", ImGuiTableColumnFlags_WidthFixed);
    ImGui::TableSetupColumn("B / A (log scale)",
                            ImGuiTableColumnFlags_WidthStretch | ImGuiTableColumnFlags_NoSort);
    const auto keys = [&](std::size_t r) -> std::vector<SortKey> {
        const ForestRow& row = forest.rows[r];
        const SortKey none{std::string()};
        return {row.quantity->name,
                row.quantity->a,
                row.quantity->b,
                row.ratio > 0 ? row.ratio : none,
                row.interval ? row.interval->first : none,
                change_text(*row.quantity)};
    };
    for (const std::size_t r : order_rows(draw_headings(), forest.rows.size(), keys)) {
        const ForestRow& row = forest.rows[r];
        ImGui::TableNextRow();
        const auto cells = compare_cells(*row.quantity);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const Change change = i < 5 ? Change::none_shown : row.quantity->change;
            const TextColour colour(change_rgb(
                style, change, change == Change::none_shown ? style.colours.text : style.colours.text_dim));
            if (i > 0 && i < 5) {
                draw_cell_right(cells[i]);
                continue;
            }
            ImGui::TableNextColumn();
            ImGui::TextUnformatted(cells[i].c_str());
        }
        draw_interval_cell(style, forest, row);
    }
    ImGui::EndTable();
}

void draw_comparison(const Style& style, const Comparison& comparison) {
    ImGui::PushFont(style.ui_bold, 0);
    ImGui::TextWrapped("%s", comparison.verdict.c_str());
    ImGui::PopFont();
    for (const std::string& warning : comparison.warnings) draw_wrapped(style.colours.warn, warning);
    for (const auto& [letter, run] : {std::pair{'A', &comparison.a}, {'B', &comparison.b}})
        draw_cut_text(compare_side(letter, *run));
    draw_table(style, comparison);
    draw_hint(style, compare_footer(comparison));
}

/// Requests the comparison if the choice changed. For live runs, a button requests it.
void request_comparison(PanelContext& c, CompareState& state, bool live) {
    const CompareChoice choice{*state.a, *state.b, state.force};
    const CompareReport* report = c.status.comparison.get();
    const bool is_current = report != nullptr && report->choice == choice;
    if (live) {
        if (ImGui::Button("Compare recorded rounds")) c.commands.push_back(CmdCompare{choice});
        return;
    }
    if (is_current || c.status.comparing || state.requested == choice) return;
    state.requested = choice;
    c.commands.push_back(CmdCompare{choice});
}

/// Selects the round that has the token at a place of the diff, in the shown run, else in A.
void select_difference(PanelContext& c, const CompareState& state, const PromptDiff& prompt, int at_a,
                       int at_b) {
    const bool in_b = shows(c, *state.b);
    const CompareSide& side = in_b ? *state.b : *state.a;
    const std::size_t tokens = in_b ? prompt.tokens_b.size() : prompt.tokens_a.size();
    const int position = std::min(in_b ? at_b : at_a, static_cast<int>(tokens) - 1);
    const auto round =
        round_at_position(*find_capture(c, side.source), in_b ? prompt.prompt_b : prompt.prompt_a, position);
    if (round) c.ui.place = {side.source, side.run_id, *round};
    c.ui.focus_panel = "text";
}

/// Draws the prompts with the place where their outputs part.
void draw_prompts(PanelContext& c, CompareState& state, const Snapshot& a, const Snapshot& b, float height) {
    if (!ImGui::BeginTable("prompts", 6, table_flags | sorting_flags | ImGuiTableFlags_ScrollY, {0, height}))
        return;
    ImGui::TableSetupScrollFreeze(0, 1);
    ImGui::TableSetupColumn("prompt", ImGuiTableColumnFlags_WidthFixed);
    ImGui::TableSetupColumn("category", ImGuiTableColumnFlags_WidthStretch);
    for (const char* name : {"tokens A", "tokens B", "differ at"})
        ImGui::TableSetupColumn(name, ImGuiTableColumnFlags_WidthFixed | number_column);
    ImGui::TableSetupColumn("A | B", ImGuiTableColumnFlags_WidthStretch, 2);
    const auto token = [](const Snapshot& of, RowId prompt, const std::vector<TokenId>& tokens, int at) {
        if (at >= static_cast<int>(tokens.size())) return std::string("(end)");
        return token_label(of, of.run(of.prompt(prompt)->run_id), tokens[static_cast<std::size_t>(at)]);
    };
    const auto parting = [&](const PromptDiff& diff) {
        return diff.first ? fmt::format("{} | {}", token(a, diff.prompt_a, diff.tokens_a, *diff.first),
                                        token(b, diff.prompt_b, diff.tokens_b, *diff.first))
                          : "the outputs agree";
    };
    const auto keys = [&](std::size_t r) -> std::vector<SortKey> {
        const PromptDiff& diff = state.diff.prompts[r];
        return {a.prompt(diff.prompt_a)->ordinal,
                a.prompt(diff.prompt_a)->category,
                diff.tokens_a.size(),
                diff.tokens_b.size(),
                diff.first ? SortKey(*diff.first) : SortKey(std::string()),
                parting(diff)};
    };
    for (const std::size_t r : order_rows(draw_headings(), state.diff.prompts.size(), keys)) {
        const PromptDiff& diff = state.diff.prompts[r];
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        ImGui::PushID(static_cast<int>(r));
        if (ImGui::Selectable("##prompt", state.prompt == r, ImGuiSelectableFlags_SpanAllColumns)) {
            state.prompt = r;
            if (diff.first) select_difference(c, state, diff, *diff.first, *diff.first);
        }
        ImGui::PopID();
        ImGui::SameLine(0, 0);
        ImGui::Text("%d", a.prompt(diff.prompt_a)->ordinal + 1);
        ImGui::TableNextColumn();
        draw_cut_text(a.prompt(diff.prompt_a)->category);
        draw_cell_right(fmt::format("{}", diff.tokens_a.size()));
        draw_cell_right(fmt::format("{}", diff.tokens_b.size()));
        draw_cell_right(diff.first ? fmt::format("{}", *diff.first) : "-", !diff.first);
        ImGui::TableNextColumn();
        draw_cut_text(parting(diff));
    }
    ImGui::EndTable();
}

/// Draws both outputs as one text; a click on a changed part selects its round.
void draw_diff(PanelContext& c, const CompareState& state, const PromptDiff& prompt,
               const std::vector<DiffGroup>& groups) {
    ImGui::PushFont(c.style.mono, 0);
    std::vector<TextPiece> pieces(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
        pieces[i].text =
            replace_missing_glyphs(groups[i].text, [&](char32_t code) { return c.style.has_glyph(code); });
    const auto measure = [](std::string_view text) {
        return ImGui::CalcTextSize(text.data(), text.data() + text.size()).x;
    };
    const float line = ImGui::GetTextLineHeightWithSpacing();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const std::vector<TextRun> runs =
        lay_out_text(pieces, std::max(ImGui::GetContentRegionAvail().x, 6 * c.style.em), measure);
    for (const TextRun& run : runs) {
        const DiffGroup& group = groups[run.piece];
        const ImVec2 min(at.x + run.x, at.y + static_cast<float>(run.line) * line);
        const ImVec2 max(min.x + run.width, min.y + ImGui::GetTextLineHeight());
        const bool changed = group.side != DiffSide::both;
        const std::uint32_t rgb = group.side == DiffSide::only_a ? c.style.colours.bad : c.style.colours.good;
        if (changed) ImGui::GetWindowDrawList()->AddRectFilled(min, max, to_im(rgb, 0.25f), 2);
        const char* text = pieces[run.piece].text.data() + run.first;
        ImGui::GetWindowDrawList()->AddText(min, to_im(c.style.colours.text), text, text + run.count);
        if (changed && ImGui::IsWindowHovered() && ImGui::IsMouseHoveringRect(min, max) &&
            ImGui::IsMouseClicked(ImGuiMouseButton_Left))
            select_difference(c, state, prompt, group.position_a, group.position_b);
    }
    ImGui::Dummy({1, runs.empty() ? line : static_cast<float>(runs.back().line + 1) * line});
    ImGui::PopFont();
}

void draw_texts(PanelContext& c, CompareState& state) {
    const Snapshot &a = *find_capture(c, state.a->source), &b = *find_capture(c, state.b->source);
    const auto mix = [](std::uint64_t key, auto value) {
        return 31 * key + std::hash<decltype(value)>()(value);
    };
    const std::uint64_t key = mix(mix(mix(mix(7, &a), state.a->run_id), &b), state.b->run_id);
    state.rebuild.update(c, key, [&] {
        state.diff = diff_runs(a, state.a->run_id, b, state.b->run_id);
        state.groups = {};
    });
    draw_in_font(c.style.ui_bold, state.diff.headline);
    if (state.diff.prompts.empty()) return;
    state.prompt = std::min(state.prompt, state.diff.prompts.size() - 1);
    const PromptDiff& prompt = state.diff.prompts[state.prompt];
    draw_prompts(c, state, a, b, std::max(0.4f * ImGui::GetContentRegionAvail().y, 6 * c.style.em));
    draw_hint(c.style, fmt::format("prompt {}:  [-only in A-]  {{+only in B+}}; click a change to select it",
                                   a.prompt(prompt.prompt_a)->ordinal + 1));
    const auto& groups =
        state.groups.get({key, c.ui.data_key, prompt.prompt_a}, [&] { return diff_texts(a, b, prompt); });
    if (ImGui::BeginChild("##diff")) draw_diff(c, state, prompt, groups);
    ImGui::EndChild();
}

}  // namespace

std::string show_other_run(PanelContext& c) {
    auto& state = c.panel_state.get<CompareState>();
    keep_or_choose_pair(state, comparable_runs(c.snapshot, c.status.others), c.ui.compare_newest);
    if (!state.a || !state.b) return "There is no second run. Record one, or add a capture in Compare.";
    const CompareSide now{c.snapshot.source, c.ui.run_id};
    const CompareSide& wanted = shows(c, *state.b) ? *state.a : *state.b;
    const Snapshot* other = find_capture(c, wanted.source);
    if (other == nullptr || !c.ui.round || *c.ui.round >= c.snapshot.rounds.size())
        return "Select a finished round first.";
    const RoundRow& round = c.snapshot.rounds[*c.ui.round].row;
    // A way back is to the round that it came from, which may begin earlier in the text.
    const bool returns = state.reached == CapturedRound{now.source, now.run_id, *c.ui.round};
    const auto position = returns ? state.position : first_position(c.snapshot, round.id);
    const RunDiff pairs = diff_runs(c.snapshot, now.run_id, *other, wanted.run_id);
    const auto pair = std::ranges::find(pairs.prompts, round.prompt_id, &PromptDiff::prompt_a);
    if (pair == pairs.prompts.end() || !position) return "The other run does not have this prompt.";
    const auto found = round_at_position(*other, pair->prompt_b, *position);
    if (!found) return fmt::format("The other run's text ends before token {}.", *position);
    c.ui.place = state.reached = {wanted.source, wanted.run_id, *found};
    state.position = *position;
    return "";
}

void draw_compare(PanelContext& c) {
    auto& state = c.panel_state.get<CompareState>();
    const std::vector<CompareRun> runs = comparable_runs(c.snapshot, c.status.others);
    keep_or_choose_pair(state, runs, c.ui.compare_newest);
    choose(c, state, runs);
    if (!state.a || !state.b)
        return draw_empty_text(c.style,
                               "Compares two runs over the same prompts, prompt by prompt: is B faster than "
                               "A, and why? Record a second run, or add another capture.");
    if (*state.a == *state.b)
        return draw_empty_text(c.style, "A and B are the same run. Choose another run.");
    if (ImGui::RadioButton("Speed", !state.texts)) state.texts = false;
    ImGui::SameLine();
    if (ImGui::RadioButton("Texts", state.texts)) state.texts = true;
    if (state.texts) return draw_texts(c, state);
    const bool live = find(runs, state.a)->live || find(runs, state.b)->live;
    request_comparison(c, state, live);
    const CompareReport* report = c.status.comparison.get();
    if (report == nullptr || !(report->choice == CompareChoice{*state.a, *state.b, state.force})) {
        if (c.status.comparing) draw_hint(c.style, "comparing...");
        return;
    }
    if (report->comparison) return draw_comparison(c.style, *report->comparison);
    draw_wrapped(c.style.colours.warn, report->refusal);
    if (!report->may_force) return;
    if (ImGui::Button("Compare anyway")) state.force = true;
    show_tooltip(c.style,
                 "The result is marked as forced: the runs differ in more than the compared settings.");
}

}  // namespace draftscope
