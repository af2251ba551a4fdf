#include "app/gui/models/finding.h"

#include <imgui.h>
#include <imgui_stdlib.h>

#include <utility>

#include "app/gui/models/rounds.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/shell/app.h"

/// Goes to rounds: the slowest, rejections, bookmarks.
namespace draftscope {

void App::go_to_round(std::optional<std::size_t> round, const char* none) {
    if (round) return ui_.select_round(*round, snapshot_->rounds.size());
    say(none);
}

void App::find_slowest(std::optional<int> phase) {
    const bool again = slow_round_ == ui_.round && slow_phase_ == phase;
    go_to_round(find_slow_round(*snapshot_, ui_.run_id, again ? ui_.round : std::nullopt, phase),
                "No round of this run has such a time that counts.");
    slow_round_ = ui_.round;
    slow_phase_ = phase;
}

void App::find_round(ActionId id) {
    using enum ActionId;
    if (id == slowest) return find_slowest(slow_round_ == ui_.round ? slow_phase_ : std::nullopt);
    const bool next = id == next_rejected || id == next_outside || id == next_bookmark;
    const RoundMark mark = id == next_outside || id == previous_outside     ? RoundMark::outside_set
                           : id == next_bookmark || id == previous_bookmark ? RoundMark::bookmark
                                                                            : RoundMark::rejected;
    const RoundSpan rounds = rounds_of_run(*snapshot_, ui_.run_id);
    const std::size_t from = ui_.in_flight || !ui_.round ? rounds.end : *ui_.round;
    go_to_round(find_marked_round(*snapshot_, ui_.run_id, from, next ? 1 : -1, mark),
                next ? "No further one in this run." : "No earlier one in this run.");
}

/// Removes the bookmark of the selected round, or asks for the text of a new one. `edit`: asks in any case.
void App::change_bookmark(bool edit) {
    if (ui_.in_flight || !ui_.round || *ui_.round >= snapshot_->rounds.size())
        return say("Only a finished round can have a bookmark: select one.");
    if (snapshot_ != own_)
        return say("This capture is open to compare. Open it by itself to bookmark its rounds.");
    const RoundRow& round = snapshot_->rounds[*ui_.round].row;
    const std::vector<RoundNotes> all = find_round_notes(*snapshot_, ui_.run_id);
    const RoundNotes* notes = find_notes(all, *ui_.round);
    bookmark_ = {round.run_id, round.id, round.end_ns, ""};
    bookmark_exists_ = notes != nullptr && notes->bookmark;
    if (bookmark_exists_ && !edit) return keep_bookmark(no_bookmark_note);
    bookmark_text_ = bookmark_exists_ ? *notes->bookmark : "";
    bookmark_requested_ = true;
}

void App::keep_bookmark(std::string_view text) {
    bookmark_.text = text;
    commands_.emplace_back(std::in_place_type<CmdAddNote>, CmdAddNote{bookmark_});
}

void App::draw_bookmark() {
    constexpr const char* title = "Bookmark";
    if (bookmark_requested_) ImGui::OpenPopup(title);
    if (!begin_dialog(title, nullptr, ImGuiWindowFlags_AlwaysAutoResize)) return;
    ImGui::SetNextItemWidth(style_.em * 28);
    if (std::exchange(bookmark_requested_, false)) ImGui::SetKeyboardFocusHere();
    const bool entered = ImGui::InputTextWithHint("##text", "what is to be seen in this round",
                                                  &bookmark_text_, ImGuiInputTextFlags_EnterReturnsTrue);
    const ImVec2 size(style_.em * 7, 0);
    const bool keep = ImGui::Button("Keep", size) || entered;
    ImGui::SameLine();
    ImGui::BeginDisabled(!bookmark_exists_);
    const bool removes = ImGui::Button("Remove", size);
    ImGui::EndDisabled();
    ImGui::SameLine();
    const bool cancel = ImGui::Button("Cancel", size) || ImGui::IsKeyPressed(ImGuiKey_Escape);
    if (keep) keep_bookmark(std::string(bookmark_note) + bookmark_text_);
    if (removes) keep_bookmark(no_bookmark_note);
    if (keep || removes || cancel) ImGui::CloseCurrentPopup();
    ImGui::EndPopup();
}

}  // namespace draftscope
