#include "app/gui/shell/app.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "app/gui/models/copied_table.h"
#include "app/gui/models/dropped.h"
#include "app/gui/models/finding.h"
#include "app/gui/models/rounds.h"
#include "app/gui/models/selection.h"
#include "app/gui/models/session.h"
#include "app/gui/panels/compare.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/shell/layout.h"
#include "app/gui/shell/theme.h"
#include "base/clock.h"
#include "base/format_count.h"
#include "base/log.h"
#include "base/user_folders.h"
#include "capture/capture.h"

namespace draftscope {

std::span<const Action> actions() {
    static constexpr ImGuiKeyChord ctrl = ImGuiMod_Ctrl, shift = ImGuiMod_Shift;
#define DS_LIST_ACTION(id, ...) Action{ActionId::id, __VA_ARGS__},
    static constexpr Action table[] = {DS_ACTIONS(DS_LIST_ACTION)};
#undef DS_LIST_ACTION
    return table;
}

namespace {

constexpr ImGuiID dockspace_id = 0x44534401;
constexpr TimeNs notice_ns = 6 * ns_per_s;
constexpr TimeNs keep_every_ns = ns_per_s;  ///< between writes of the settings
/// Default head without the demo: a shipped head other than the full one.
constexpr std::string_view default_head = "fr-spec";
/// A tree, which is what there is to see, rather than the fastest setting, which may be a chain.
constexpr const char* demo_tree = "depth=3,topk=4,nodes=12";
constexpr TimeNs slow_level_ns = 400 * ns_per_ms;  ///< about 2 s for the first round of the demo

std::string absolute_path(const std::string& path) {
    std::error_code error;
    const auto absolute = std::filesystem::absolute(path, error);
    return error ? path : absolute.lexically_normal().string();
}

/// Returns true if a text field has the focus, or a list or dialog is open.
bool is_text_expected() {
    return ImGui::GetIO().WantTextInput || ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopup);
}

/// Returns true for keys that edit text: all except function keys and keys with Ctrl.
bool is_text_key(ImGuiKeyChord chord) {
    const auto key = static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_);
    return (chord & ImGuiMod_Ctrl) == 0 && (key < ImGuiKey_F1 || key > ImGuiKey_F24);
}

bool same_status(const JobStatus& a, const JobStatus& b) {
    return a.state == b.state && a.activity == b.activity && a.progress == b.progress &&
           a.hold_reason == b.hold_reason && a.hold_point == b.hold_point && a.error == b.error &&
           a.heads.size() == b.heads.size() && a.drafters.size() == b.drafters.size() &&
           a.capability_line == b.capability_line && a.opened_file == b.opened_file &&
           a.overlay == b.overlay && a.others == b.others && a.comparison == b.comparison &&
           a.comparing == b.comparing && a.saved_files == b.saved_files && a.forecast == b.forecast &&
           a.sweeps == b.sweeps && a.checked == b.checked && a.finding == b.finding && a.models == b.models;
}

}  // namespace

App::App(Controller& controller, const GuiOptions& options)
    : controller_(controller),
      options_(options),
      own_(controller.snapshot()),
      snapshot_(own_),
      open_dialog_("Open capture", "Open", true),
      save_dialog_("Save a copy", "Save", false),
      other_dialog_("Open another capture", "Open", true),
      browse_dialog_("Choose a path", "Choose", true),
      picture_dialog_("Save a panel", "Save", false) {
    load_fonts(style_, find_assets());
    config_.prompt = demo_prompt;
    for (const Panel& panel : panels()) ui_.open.emplace(panel.id, panel.open);
    apply_settings();
    if (!options.theme.empty()) settings_.theme = options.theme == "light" ? ThemeId::light : ThemeId::dark;
    if (is_layout(options.layout)) settings_.layout = options.layout;
    for (const std::string& file : options.files) {
        if (&file == &options.files.front())
            commands_.push_back(CmdOpenFile{file});
        else
            commands_.push_back(CmdOpenOther{file});
    }
    if (!options.watch.empty()) {
        watched_ = {options.watch, options.watched};
        commands_.emplace_back(std::in_place_type<CmdWatchServer>, watched_);
    }
    if (!options.overlay.empty()) commands_.push_back(CmdOpenOverlay{options.overlay});
}

App::~App() {
    store_settings(true);
}

void App::apply_defaults() {
    if (defaults_applied_ || status_.heads.empty()) return;
    defaults_applied_ = true;
    demo_config_.prompt = demo_prompt;
    for (const HeadChoice& head : status_.heads)
        if (head.usable && spec_name(head.spec) == default_head) demo_config_.head = head.spec;
    const bool runs_demo = options_.run_demo && options_.files.empty() && options_.watch.empty() &&
                           !settings_.session && !options_.sets_session;
    demo_config_.tree = demo_tree;
    demo_config_.baseline = 1;
    if (!settings_.session) config_ = demo_config_;
    if (options_.sets_session) {
        config_ = options_.watched;
        if (config_.prompt.empty() && config_.prompts_file.empty()) config_.prompt = demo_prompt;
        if (!options_.sets_drafter)
            adapt_to_model(config_, find_traits(status_.drafters, config_.drafter).needs_weights);
    }
    if (runs_demo) {
        commands_.push_back(CmdStart{config_, true});
        demo_is_next_ = true;
        plays_slowly_ = options_.screenshot.empty();
        if (plays_slowly_) commands_.push_back(CmdStepLevel{});
    }
    if (options_.screenshot.empty()) guide_open_ = !settings_.guide_seen;
}

/// Takes the controller's snapshot, or swaps it with the capture open for comparison that is shown. Returns
/// true if the panels must be drawn again.
bool App::take_snapshot(JobStatus& status, bool stopped_elsewhere) {
    const auto before = std::exchange(own_, controller_.snapshot());
    // A new run, or another file, is what the user wants to see.
    if (own_->source != before->source || own_->runs.size() != before->runs.size()) shown_other_.clear();
    std::shared_ptr<const Snapshot> shown = own_;
    if (ui_.place) shown_other_ = ui_.place->source == own_->source ? "" : ui_.place->source;
    for (auto& other : status.others)
        if (!shown_other_.empty() && other->source == shown_other_) std::swap(other, shown);
    if (shown == snapshot_ && ui_.data_key != 0 && !ui_.place && !stopped_elsewhere) return false;
    snapshot_ = std::move(shown);
    ++ui_.data_key;
    sync_selection(*snapshot_, ui_);
    const auto place = std::exchange(ui_.place, std::nullopt);
    if (place && place->source == snapshot_->source && place->round < snapshot_->rounds.size()) {
        select_run(*snapshot_, ui_, place->run_id);
        ui_.select_round(place->round, snapshot_->rounds.size());
    }
    return true;
}

bool App::prepare(float monitor_scale) {
    const float scale = monitor_scale * settings_.user_scale * static_cast<float>(options_.scale);
    bool changed = frames_ == 0;
    if (scale != applied_scale_ || settings_.theme != applied_theme_ || frames_ == 0) {
        apply_theme(style_, settings_.theme, scale);
        applied_scale_ = scale;
        applied_theme_ = settings_.theme;
        changed = true;
    }
    // The status is read first: the snapshot then has every round that it speaks of.
    JobStatus status = controller_.status();
    const HoldPoint& held = status.hold_point;
    const bool after_round = status.state == JobState::held && held.kind == HoldPoint::Kind::after_round;
    const RowId stopped = std::exchange(ui_.stopped_prompt, after_round ? held.prompt_id : 0);
    changed |= take_snapshot(status, stopped != ui_.stopped_prompt);
    changed |= !same_status(status, status_);
    apply_status(std::move(status));
    changed |= next_level_at_ && monotonic_ns() >= *next_level_at_;
    unsaved_.update(*own_, demo_is_running_ || !status_.config.save.empty());
    if (!notice_.empty() && monotonic_ns() >= notice_until_) {
        notice_.clear();
        changed = true;
    }
    store_settings(false);
    return changed;
}

void App::apply_status(JobStatus status) {
    const JobStatus before = std::exchange(status_, std::move(status));
    if (status_.opened_file != before.opened_file && !status_.opened_file.empty())
        add_recent_file(settings_, absolute_path(status_.opened_file));
    if (demo_is_running_ && status_.state == JobState::idle && before.state != JobState::idle && ui_.follow)
        if (const auto round = instructive_rejection(*snapshot_, ui_.run_id))
            ui_.select_round(*round, snapshot_->rounds.size());
    // What a file brings is shown, unless a layout shows it already.
    const auto show = [&](const char* panel, bool wanted) {
        if (wanted && !ui_.open[panel]) ui_.focus_panel = panel;
    };
    show("compare", status_.others.size() > before.others.size());
    show("sweep", status_.opened_file != before.opened_file && !status_.sweeps.empty() &&
                      !status_.sweeps.back()->file.empty());
    const bool saved = status_.saved_files != before.saved_files;
    if (saved) {
        unsaved_.save(rounds_being_saved_, notes_being_saved_);
        add_recent_file(settings_, status_.saved_file);
        say("Saved " + status_.saved_file);
    }
    if (!leave_when_saved_) return;
    if (saved && leaving_) std::exchange(leaving_, nullptr)();
    if (saved || (!status_.error.empty() && status_.error != before.error)) leave_when_saved_ = false;
}

/// Steps through the first round of the demo level by level, then lets it run. Any key or click ends this; it
/// may itself step or continue the run. Call at the end of a frame, which has shown the level.
void App::play_slowly() {
    bool input = ImGui::IsMouseReleased(ImGuiMouseButton_Left);
    for (int key = ImGuiKey_NamedKey_BEGIN; key < ImGuiKey_GamepadStart; ++key)
        input |= ImGui::IsKeyPressed(static_cast<ImGuiKey>(key), false);
    const bool held = status_.state == JobState::held;
    const TimeNs now = monotonic_ns();
    if (plays_slowly_ && held && !next_level_at_) next_level_at_ = now + slow_level_ns;
    const bool due = next_level_at_ && now >= *next_level_at_;
    if (!plays_slowly_ || !held || input || due) next_level_at_.reset();
    if (!plays_slowly_ || !(input || due)) return;
    plays_slowly_ = due && !input && status_.hold_point.kind != HoldPoint::Kind::after_round;
    if (plays_slowly_)
        commands_.push_back(CmdStepLevel{});
    else if (commands_.empty())
        commands_.push_back(CmdResume{});
}

double App::seconds_to_change() const {
    double wait = std::numeric_limits<double>::infinity();
    if (!notice_.empty()) wait = seconds(notice_until_ - monotonic_ns());
    if (next_level_at_) wait = std::min(wait, seconds(*next_level_at_ - monotonic_ns()));
    return std::max(0.0, wait);
}

void App::confirm_leaving(std::function<void()> what) {
    leave_when_saved_ = false;
    if (unsaved_rounds() == 0) return what();
    leaving_ = std::move(what);
    leaving_requested_ = true;
}

void App::open_file(const std::string& path) {
    confirm_leaving([this, path] { commands_.push_back(CmdOpenFile{path}); });
}

void App::say(std::string text) {
    notice_ = std::move(text);
    notice_until_ = monotonic_ns() + notice_ns;
}

void App::drop(const std::string& path) {
    const DroppedKind kind = dropped_kind(path);
    if (kind == DroppedKind::capture) return open_file(path);
    const auto needs_weights = [&] { return find_traits(status_.drafters, config_.drafter).needs_weights; };
    say(use_dropped(path, kind, needs_weights(), config_));
    if (kind == DroppedKind::recording || kind == DroppedKind::profile) {
        set_sweep_input(panel_state_, path, kind == DroppedKind::recording);
        ui_.focus_panel = "advisor";
    } else {
        ui_.focus_panel = "session";
    }
    if (kind == DroppedKind::model) adapt_to_model(config_, needs_weights());
}

void App::frame() {
    const bool first = frames_++ == 0;
    apply_defaults();
    style_.em = ImGui::GetFontSize();
    ui_.hovered_token = no_token;
    if (numbers_key_ != ui_.data_key || numbers_run_ != ui_.run_id) {
        numbers_ = header_numbers(*snapshot_, ui_.run_id);
        numbers_key_ = ui_.data_key;
        numbers_run_ = ui_.run_id;
    }
    const bool no_layout = ImGui::DockBuilderGetNode(dockspace_id) == nullptr;
    if (first && (no_layout || !options_.layout.empty())) wanted_layout_ = settings_.layout;
    handle_keys();
    draw_menu_bar();
    draw_tool_bar();
    draw_banners();
    draw_status_line();
    const ImGuiViewport* viewport = ImGui::GetMainViewport();
    // The bars reserve their space from the second frame on. The layout is built for the remaining space.
    if (!first) {
        const bool rebuilt = arrange(viewport->WorkSize);
        ImGui::DockSpaceOverViewport(dockspace_id, viewport, ImGuiDockNodeFlags_NoWindowMenuButton);
        draw_panels();
        // At the start, the panels that appear take the focus from each other, and the last one is in front.
        if (rebuilt || frames_ == 2) {
            select_first_tabs(settings_.layout, viewport->WorkSize);
            ImGui::SetWindowFocus(nullptr);
        }
    }
    draw_help();
    draw_palette();
    draw_leaving();
    draw_bookmark();
    draw_file_dialogs();
    draw_watch_dialog();
    if (std::exchange(ui_.other_run_requested, false)) {
        PanelContext context{*snapshot_, status_, ui_, config_, commands_, style_, panel_state_};
        if (std::string why = show_other_run(context); !why.empty()) say(std::move(why));
    }
    draw_notice();
    play_slowly();
    field_takes_focus_ = ui_.find_requested;
    ui_.fit_requested = ui_.fit_run_requested = false;
    ui_.find_requested = false;
    submit_commands();
}

void App::submit_commands() {
    if (const RowId prompt = watched_prompt(*snapshot_, ui_); prompt != watched_prompt_) {
        watched_prompt_ = prompt;
        // Constructed in place: GCC 12 warns that a moved temporary of this variant is uninitialised.
        Commands all;
        all.emplace_back(std::in_place_type<CmdWatch>, CmdWatch{prompt});
        for (Command& command : commands_) all.push_back(std::move(command));
        commands_ = std::move(all);
    }
    for (const Command& command : commands_) {
        if (std::holds_alternative<CmdStart>(command)) demo_is_running_ = std::exchange(demo_is_next_, false);
        if (std::holds_alternative<CmdWatchServer>(command)) demo_is_running_ = false;
        const auto* save = std::get_if<CmdSaveCopy>(&command);
        if (save == nullptr || save->source != own_->source) continue;
        rounds_being_saved_ = own_->rounds.size();
        notes_being_saved_ = own_->notes.size();
    }
    auto& forms = panel_state_.get<FormValues>();
    forms.run = config_;
    if (defaults_applied_ && submitted_forms_ != forms) {
        submitted_forms_ = forms;
        commands_.emplace_back(std::in_place_type<CmdCheck>, CmdCheck{forms});
    }
    if (!commands_.empty()) controller_.submit(std::exchange(commands_, {}));
}

/// Fits the dock space to the window. Returns true if the panels were rearranged.
bool App::arrange(ImVec2 room) {
    scale_layout(dockspace_id, room);
    const bool wanted = !wanted_layout_.empty();
    if (!wanted && !needs_other_arrangement(settings_.layout, room)) return false;
    const auto open = ui_.open;
    if (wanted) settings_.layout = std::exchange(wanted_layout_, {});
    build_layout(dockspace_id, room, settings_.layout, ui_);
    if (!wanted) ui_.open = open;  // closed panels stay closed
    return true;
}

/// Copies tab-separated tables, or writes them as CSV into `path`.
void App::keep_tables(const std::string& tables, const std::string& path) {
    if (tables.empty()) return say("this panel has no table");
    const std::string rows = format_count(std::ranges::count(tables, '\n'), "row");
    if (!path.empty()) {
        const bool saved = replace_file(path, to_csv(tables));
        return say(saved ? fmt::format("saved {} in {}", rows, path) : path + ": can't be written");
    }
    ImGui::SetClipboardText(tables.c_str());
    say("copied " + rows);
}

/// Draws a panel. A click with the right button copies its tables or saves them or a picture of it.
void App::draw_panel(const Panel& panel, PanelContext& context) {
    const bool copies =
        std::exchange(copied_panel_, copied_panel_ == panel.id ? "" : copied_panel_) == panel.id;
    if (copies) ImGui::LogToBuffer();
    panel.draw(context);
    if (copies) {
        const std::string table = to_tab_separated(ImGui::GetCurrentContext()->LogBuffer.c_str());
        ImGui::LogFinish();
        keep_tables(table, std::exchange(tables_path_, ""));
    }
    const ImVec2 dragged = ImGui::GetMouseDragDelta(ImGuiMouseButton_Right, 0);
    const bool clicked = ImGui::IsMouseReleased(ImGuiMouseButton_Right) && dragged.x == 0 && dragged.y == 0;
    if (clicked && ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows)) ImGui::OpenPopup("##panel");
    if (!ImGui::BeginPopup("##panel")) return;
    if (ImGui::MenuItem("Copy its tables")) copied_panel_ = panel.id;
    if (ImGui::MenuItem("Save a picture of it...")) {
        const ImVec2 at = ImGui::FindWindowByName(window_name(panel).c_str())->Pos;
        const ImVec2 size = ImGui::FindWindowByName(window_name(panel).c_str())->Size;
        saved_panel_ = panel.id;
        picture_ = {panel.id + std::string(".png"), at.x, at.y, size.x, size.y};
        picture_dialog_.request(picture_.path, settings_.folder);
    }
    if (ImGui::MenuItem("Save its tables as CSV...")) {
        saved_panel_ = panel.id;
        picture_dialog_.request(panel.id + std::string(".csv"), settings_.folder);
    }
    ImGui::EndPopup();
}

void App::draw_panels() {
    PanelContext context{*snapshot_, status_, ui_, config_, commands_, style_, panel_state_};
    for (const Panel& panel : panels()) {
        bool& open = ui_.open[panel.id];
        if (!open) continue;
        const std::string name = window_name(panel);
        ImGui::SetNextWindowSize(ImVec2(style_.em * 30, style_.em * 20), ImGuiCond_FirstUseEver);
        const ImGuiWindowFlags scrolling = enforce_min_size(panel, name, style_.em);
        if (ImGui::Begin(name.c_str(), &open, ImGuiWindowFlags_NoCollapse | scrolling))
            draw_panel(panel, context);
        ImGui::End();
    }
    for (const Panel& panel : panels()) {
        if (ui_.focus_panel != panel.id) continue;
        ui_.open[panel.id] = true;
        ImGui::SetWindowFocus(window_name(panel).c_str());
    }
    ui_.focus_panel.clear();
}

void App::handle_keys() {
    if (ImGui::GetTopMostPopupModal() != nullptr) return;
    const bool typing = is_text_expected() || field_takes_focus_;
    for (const Action& entry : actions()) {
        if (entry.chord == ImGuiKey_None || (typing && is_text_key(entry.chord))) continue;
        if (entry.id == ActionId::leave_range && !ui_.range) continue;  // without a range, Esc has other uses
        const bool repeats = entry.id == ActionId::previous_round || entry.id == ActionId::next_round;
        const ImGuiInputFlags flags = ImGuiInputFlags_RouteGlobal | (repeats ? ImGuiInputFlags_Repeat : 0);
        if (ImGui::Shortcut(entry.chord, flags)) perform(entry.id);
    }
}

void App::request_layout(std::string_view name) {
    wanted_layout_ = is_layout(name) ? name : layout_names.front();
}

void App::perform(ActionId id) {
    using enum ActionId;
    const JobState state = status_.state;
    const bool starts = id == ActionId::run_pause || id == ActionId::step_round ||
                        id == ActionId::step_level || id == ActionId::step_phase;
    if (const std::string reason = why_not_to_start(status_.checked->run);
        starts && state == JobState::idle && !reason.empty())
        return say(reason);
    const bool idle = state == JobState::idle, active = state != JobState::stopping;
    // When idle, a step starts a new run and ends after its first round, level or phase.
    const auto step = [&](Command command) {
        if (idle) commands_.emplace_back(std::in_place_type<CmdStart>, CmdStart{config_});
        if (active) commands_.push_back(std::move(command));
        set_follow(*snapshot_, ui_, true);
    };
    const auto rescale = [&](float factor) {
        settings_.user_scale = std::clamp(settings_.user_scale * factor, min_user_scale, max_user_scale);
    };
    switch (id) {
        case open_file:
            return open_dialog_.request("", settings_.folder);
        case save_copy:
            leave_when_saved_ = false;
            return save_dialog_.request("run.dscope", settings_.folder);
        case quit:
            return confirm_leaving([this] { quit_ = true; });
        case run_pause:
            if (idle)
                commands_.push_back(CmdStart{config_});
            else if (state == JobState::held)
                commands_.push_back(CmdResume{});
            else if (active)
                commands_.push_back(CmdPause{});
            return;
        case stop:
            if (!idle && active) commands_.push_back(CmdStop{});
            return;
        case find_fastest:
            if (idle) start_find_fastest(config_, commands_, ui_);
            return;
        case step_round:
            return step(CmdStepRound{});
        case step_level:
            return step(CmdStepLevel{});
        case step_phase:
            return step(CmdStepPhase{});
        case previous_round:
            return step_selection(*snapshot_, ui_, -1);
        case next_round:
            return step_selection(*snapshot_, ui_, 1);
        case first_round:
            return step_selection(*snapshot_, ui_, -static_cast<int>(snapshot_->rounds.size()));
        case last_round:
            return step_selection(*snapshot_, ui_, static_cast<int>(snapshot_->rounds.size()));
        case slowest:
        case next_rejected:
        case previous_rejected:
        case next_outside:
        case previous_outside:
        case next_bookmark:
        case previous_bookmark:
            return find_round(id);
        case bookmark:
        case edit_bookmark:
            return change_bookmark(id == edit_bookmark);
        case follow:
            return set_follow(*snapshot_, ui_, !ui_.follow);
        case find:
            ui_.open["text"] = true;
            ui_.find_requested = true;
            return;
        case leave_range:
            return ui_.range.reset();
        case larger:
            return rescale(1.1f);
        case smaller:
            return rescale(1 / 1.1f);
        case normal_size:
            return rescale(1 / settings_.user_scale);
        case reset_layout:
            return request_layout(settings_.layout);
        default:
            return set_flag(id);
    }
}

/// Performs the actions that only set a value.
void App::set_flag(ActionId id) {
    using enum ActionId;
    for (const auto& [of, flag] : {std::pair{fit, &ui_.fit_requested},
                                   {fit_run, &ui_.fit_run_requested},
                                   {other_run, &ui_.other_run_requested},
                                   {palette, &palette_requested_},
                                   {help, &help_requested_},
                                   {watch_server, &watch_requested_},
                                   {guide, &guide_open_}})
        if (id == of) *flag = true;
    for (const auto& [of, layout] : {std::pair{layout_explain, "explain"},
                                     {layout_profile, "profile"},
                                     {layout_compare, "compare"},
                                     {layout_choose, "choose"}})
        if (id == of) request_layout(layout);
    if (id == theme_dark) settings_.theme = ThemeId::dark;
    if (id == theme_light) settings_.theme = ThemeId::light;
}

std::optional<PictureRequest> App::take_picture() {
    return frames_ < picture_from_ ? std::nullopt : std::exchange(wanted_picture_, std::nullopt);
}

void App::picture_saved(const Status& saved) {
    say(saved.ok() ? "saved " + picture_.path : saved.error().message);
}

std::string App::title() const {
    const RunRow* run = snapshot_->run(ui_.run_id);
    if (!snapshot_->source.empty()) return short_name(snapshot_->source) + " - Draftscope";
    return run == nullptr ? "Draftscope" : short_name(run->target) + " - Draftscope";
}

void UnsavedRounds::update(const Snapshot& snapshot, bool kept) {
    if (snapshot.source != source_ || snapshot.rounds.size() < known_rounds_) *this = {};
    source_ = snapshot.source;
    known_rounds_ = snapshot.rounds.size();
    for (const RunRow& run : snapshot.runs)
        if (known_.insert(run.id).second && kept) kept_.insert(run.id);
}

std::size_t UnsavedRounds::count(const Snapshot& snapshot) const {
    if (!snapshot.source.empty()) return 0;
    std::size_t rounds = 0;
    for (const RunRow& run : snapshot.runs) {
        if (kept_.contains(run.id)) continue;
        const RoundSpan span = rounds_of_run(snapshot, run.id);
        rounds += span.end - std::min(span.end, std::max(span.first, saved_rounds_));
    }
    for (std::size_t i = saved_notes_; rounds == 0 && i < snapshot.notes.size(); ++i)
        if (is_of_bookmark(snapshot.notes[i]) && !kept_.contains(snapshot.notes[i].run_id)) return 1;
    return rounds;
}

void App::apply_settings() {
    if (options_.settings_file.empty()) return;
    settings_ = stored_settings_ = load_settings(options_.settings_file);
    if (settings_.session) config_ = *settings_.session;
    for (const auto& [id, open] : settings_.open_panels)
        if (const auto panel = ui_.open.find(id); panel != ui_.open.end()) panel->second = open;
}

void App::store_settings(bool at_once) {
    if (options_.settings_file.empty()) return;
    if (!at_once && monotonic_ns() - settings_stored_at_ < keep_every_ns) return;
    settings_stored_at_ = monotonic_ns();
    settings_.open_panels = ui_.open;
    if (defaults_applied_) {
        // The capture file belongs to a single run and is not saved.
        RunConfig session = config_;
        session.save.clear();
        session.overwrite = false;
        settings_.session = session == demo_config_ ? std::nullopt : std::optional(session);
    }
    if (settings_ == stored_settings_) return;
    stored_settings_ = settings_;
    const Status saved = save_settings(settings_, options_.settings_file);
    if (!saved.ok()) log_warning("{}", saved.error().message);
}

}  // namespace draftscope
