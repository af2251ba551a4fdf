#include "app/gui/models/session.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <functional>
#include <ranges>
#include <utility>

#include "app/gui/models/selection.h"
#include "app/gui/panels/path_field.h"
#include "app/gui/panels/sweep_form.h"
#include "app/gui/panels/widgets.h"
#include "capture/head_traits.h"

/// Session panel: the settings of the next run (RunConfig) as fields.
namespace draftscope {
namespace {

constexpr float label_share = 0.31f;
constexpr int max_new_tokens = 4096;
constexpr int max_context = 1 << 20;
constexpr int max_nodes = 256;
constexpr const char* automatic = "auto";  ///< value of --tree and --head

struct SessionState {
    bool tree_as_text = false;
    bool break_on_rejection = false;
    int rejection_depth = 1;
    CmdBreakpoints breakpoints;  ///< as last sent
    bool copied = false;
};

std::string command_line(const PanelContext& c) {
    return to_command_line(c.config, find_traits(c.status.drafters, c.config.drafter));
}

/// Draws a label at the left; the next widget fills the rest of the line.
void label(PanelContext& c, const char* text, const char* what = nullptr) {
    const Style& style = c.style;
    const float width = ImGui::GetContentRegionAvail().x;
    const float start = ImGui::GetCursorPosX();
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", text);
    if (what != nullptr) show_tooltip(style, what);
    const float longest = ImGui::CalcTextSize("Shadow heads").x + 0.6f * style.em;
    ImGui::SameLine(start + std::max(width * label_share, longest));
    ImGui::SetNextItemWidth(-FLT_MIN);
    // The panel takes the focus first.
    if (!c.ui.focus_panel.empty() || c.ui.focus_field.empty() || c.ui.focus_field != text) return;
    c.ui.focus_field.clear();
    ImGui::SetKeyboardFocusHere();
    ImGui::SetScrollHereY();
}

/// Shows what is wrong with a field of the next run.
template <typename Value>
void draw_mistake(PanelContext& c, const char* field, Value& value) {
    draftscope::draw_mistake(c, c.status.checked->run, field, value);
}

/// Draws a labelled number that is dragged or typed; a typed one may be out of range.
void drag(PanelContext& c, const char* name, const char* id, const char* what, int& value, float speed,
          int min, int max, const char* format = "%d") {
    label(c, name, what);
    ImGui::DragInt(id, &value, speed, min, max, format);
    draw_mistake(c, name, value);
}

/// Draws an entry of a list, greyed out if it cannot be used. Returns true if it was chosen.
bool draw_entry(const std::string& spec, const std::string& current, bool usable, const std::string& what) {
    const bool chosen = ImGui::Selectable(spec.c_str(), spec_name(spec) == spec_name(current),
                                          usable ? 0 : ImGuiSelectableFlags_Disabled);
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) ImGui::SetTooltip("%s", what.c_str());
    return chosen;
}

/// Returns why a drafter cannot run with the session's model; "" = it can. Shipped checkpoints belong to the
/// demo model.
std::string why_not(const PanelContext& c, const DrafterChoice& choice) {
    const bool has_path =
        spec_name(c.config.drafter) == spec_name(choice.spec) && c.config.drafter != choice.spec;
    if (has_path) return "";
    if (!c.config.model.empty() && choice.traits.needs_weights)
        return "needs a checkpoint for this model: select it, and name its folder below";
    return choice.usable ? "" : choice.why_not;
}

/// Shows where the chosen drafter's weights are. "" = the checkpoint that ships for the demo model. As long
/// as that one is meant, the field is under "More".
void edit_checkpoint(PanelContext& c, bool in_more) {
    if (!find_traits(c.status.drafters, c.config.drafter).needs_weights) return;
    if (in_more == (!c.config.model.empty() || c.config.drafter.find(':') != std::string::npos)) return;
    struct Typed {
        std::string drafter, path;
    };
    auto& typed = c.panel_state.get<Typed>();
    if (typed.drafter != c.config.drafter) {
        const std::size_t colon = c.config.drafter.find(':');
        typed.path = colon == std::string::npos ? "" : c.config.drafter.substr(colon + 1);
    }
    label(c, in_more ? "Drafter's file" : "  weights",
          "Folder of an EAGLE, Medusa or Hydra checkpoint, or the draft model's GGUF file or folder.");
    path_field(c, "##checkpoint",
               c.config.model.empty() ? "that of the demo model" : "folder of a checkpoint", typed.path,
               {{".gguf", ".safetensors", ".bin", ".pt"}, true, {}});
    const std::string name(spec_name(c.config.drafter));
    c.config.drafter = typed.path.empty() ? name : name + ":" + typed.path;
    typed.drafter = c.config.drafter;
}

/// Shows the weights file of the driving head. "" = the one that ships for the demo model, if there is one.
void edit_head_weights(PanelContext& c, bool in_more) {
    const std::string head(spec_name(c.config.head));
    if (head == full_head_id || head == automatic) return;
    struct Typed {
        std::string head, path, written;
    };
    auto& typed = c.panel_state.get<Typed>();
    const std::vector<std::string>& files = c.config.artefacts;
    const auto of_head =
        std::ranges::find_if(files, [&](const std::string& file) { return file.starts_with(head + "="); });
    const std::string now = of_head == files.end() ? "" : of_head->substr(head.size() + 1);
    if (in_more == (!c.config.model.empty() || !now.empty())) return;
    if (typed.head != head || typed.written != now) typed.path = now;
    typed.head = head;
    label(c, in_more ? "Head's file" : "  weights",
          "File of the head's weights or ranking, as fitting writes it.");
    path_field(c, "##head_weights", "shipped file, if any", typed.path,
               {{".safetensors", ".txt", ".json"}, false, {}});
    if (const auto nearest = draw_mistake(c, c.status.checked->run, "Head's file"))
        typed.path = nearest->substr(nearest->find('=') + 1);
    typed.written = typed.path;
    if (typed.path == now) return;
    set_head_weights(c.config, head, typed.path);
}

/// Begins a list to choose from; ImGui::EndCombo() must follow if it is open.
bool begin_choice(const char* id, const std::string& shown, bool enabled, ImGuiComboFlags flags = 0) {
    if (enabled) return ImGui::BeginCombo(id, shown.c_str(), flags);
    ImGui::BeginDisabled();  // ends outside an open list, which must not see it end
    if (ImGui::BeginCombo(id, shown.c_str(), flags)) ImGui::EndCombo();
    ImGui::EndDisabled();
    return false;
}

void choose_drafter(PanelContext& c) {
    label(c, "Drafter", "Small model that drafts tokens.");
    if (!begin_choice("##drafter", short_name(c.config.drafter), !c.status.drafters.empty())) return;
    // Names are those of the command line and the files; the tooltips have the papers' names.
    for (const DrafterChoice& choice : c.status.drafters) {
        const std::string reason = why_not(c, choice);
        // One that only lacks a checkpoint can be chosen: its field is below.
        const bool usable = reason.empty() || choice.traits.needs_weights;
        if (draw_entry(choice.spec, c.config.drafter, usable, reason.empty() ? choice.name : reason))
            c.config.drafter = choice.spec;
    }
    ImGui::EndCombo();
}

/// Returns a name without its explanation in parentheses, for a narrow field.
std::string brief(const char* name) {
    const std::string text = name;
    return text.substr(0, text.find(" ("));
}

bool is_automatic(const std::string& tree) {
    return tree == automatic || tree == quick_tree;
}

void choose_head(PanelContext& c) {
    label(c, "Head", "LM head that computes the drafter's logits: what the panels compare.");
    const bool measured = c.config.head == automatic;
    const std::string by_tree = brief(c.config.tree == quick_tree ? quick_tree_name : measured_tree_name);
    if (begin_choice("##head", measured ? by_tree : c.config.head, !c.status.heads.empty(),
                     ImGuiComboFlags_HeightLarge)) {
        if (is_automatic(c.config.tree) && ImGui::Selectable(by_tree.c_str(), measured))
            c.config.head = automatic;
        for (const HeadChoice& choice : c.status.heads) {
            const std::string reason = why_not(choice, c.config.drafter);
            if (draw_entry(choice.spec, c.config.head, reason.empty(),
                           choice.name + "\n" + (reason.empty() ? choice.paper : reason)))
                c.config.head = choice.spec;
        }
        ImGui::EndCombo();
    }
    bool explained = false;
    for (const HeadChoice& choice : c.status.heads)
        if (const std::string reason = why_not(choice, c.config.drafter);
            !reason.empty() && spec_name(choice.spec) == spec_name(c.config.head)) {
            draw_wrapped(c.style.colours.warn, reason);
            explained = true;
        }
    if (!explained) draw_mistake(c, "Head", c.config.head);
    edit_head_weights(c, false);
    label(c, "Shadow heads",
          "Other heads evaluated in the same run, for the plane and the coverage. full, slimspec and "
          "microspec draft along the same text in rounds of their own (exact); aligned:slimspec drafts in "
          "every round of the driving head (an estimate). No measured time includes them.");
    ImGui::InputTextWithHint("##shadow", "none; e.g. full,slimspec,microspec", &c.config.shadow);
    draw_mistake(c, "Shadow heads", c.config.shadow);
}

/// The user chooses between fields and text: text that parses as fields stays text.
void edit_tree(PanelContext& c, bool& as_text) {
    std::string& spec = c.config.tree;
    const std::optional<TreeFields> fields = parse_tree(spec);
    as_text |= !fields && !spec.empty() && !is_automatic(spec);
    const std::string kind = as_text              ? "as text"
                             : spec.empty()       ? brief(default_tree_name)
                             : spec == automatic  ? brief(measured_tree_name)
                             : spec == quick_tree ? brief(quick_tree_name)
                             : fields->chain      ? "chain"
                                                  : "tree";
    label(c, "Tree", "Draft tree of each round, which the target verifies in one pass.");
    if (ImGui::BeginCombo("##tree", kind.c_str())) {
        const auto choose = [&](const char* title, bool chosen, const std::string& to) {
            if (!ImGui::Selectable(title, chosen)) return false;
            spec = to;
            as_text = false;
            return true;
        };
        choose(default_tree_name, !as_text && spec.empty(), "");
        choose("tree", !as_text && fields && !fields->chain, format_tree({}));
        choose("chain", !as_text && fields && fields->chain, format_tree({.chain = true, .depth = 4}));
        if (choose(measured_tree_name, !as_text && spec == automatic, automatic)) c.config.head = automatic;
        if (choose(quick_tree_name, !as_text && spec == quick_tree, quick_tree)) c.config.head = automatic;
        if (ImGui::Selectable("as text", as_text)) {
            if (spec.empty() || is_automatic(spec)) spec = "choices:mc_sim_7b_63,levels=3";
            as_text = true;
        }
        ImGui::EndCombo();
    }
    // The automatic head is measured only together with the automatic tree.
    if (!is_automatic(spec) && c.config.head == automatic) c.config.head = full_head_id;
    if (as_text) {
        label(c, "");
        ImGui::InputText("##spec", &spec);
        draw_mistake(c, "Tree", spec);
        return;
    }
    const std::optional<TreeFields> now = parse_tree(spec);
    if (!now) return draw_mistake(c, "Tree", spec);
    TreeFields edited = *now;
    label(c, edited.chain ? "  length" : "  depth", "Drafter forward passes after the first one.");
    // A tree's depth counts the passes after the first one, as EAGLE's does: it drafts one level more.
    const std::string levels = edited.chain ? "%d" : fmt::format("%d, {} levels", edited.depth + 1);
    ImGui::SliderInt("##depth", &edited.depth, 1, 10, levels.c_str());
    if (!edited.chain) {
        label(c, "  top k", "Children drafted for each node that is expanded.");
        ImGui::SliderInt("##topk", &edited.topk, 1, 16, "%d");
        label(c, "  nodes", "Nodes that are verified, root included.");
        ImGui::SliderInt("##nodes", &edited.nodes, 2, std::clamp(largest_tree(edited), 2, max_nodes), "%d");
    }
    for (int* number : {&edited.depth, &edited.topk, &edited.nodes}) *number = std::max(*number, 1);
    if (edited != *now) spec = format_tree(edited);
    draw_mistake(c, "Tree", spec);
}

/// Returns the chosen acceptance rule; null if the jobs don't know it.
const RuleChoice* choose_rule(PanelContext& c) {
    std::string what;
    for (const RuleChoice& rule : c.status.rules)
        what += fmt::format("{}{}: {}.", what.empty() ? "" : " ", rule.id, rule.summary);
    label(c, "Verify", what.c_str());
    choose_item("##Verify", std::views::transform(c.status.rules, &RuleChoice::id), c.config.verify,
                std::identity());
    const auto found = std::ranges::find(c.status.rules, spec_name(c.config.verify), &RuleChoice::id);
    return found == c.status.rules.end() ? nullptr : &*found;
}

void edit_sampling(PanelContext& c) {
    RunConfig& config = c.config;
    drag(c, "New tokens", "##max_new", "Maximum number of tokens to generate per prompt.", config.max_new,
         1.0f, 1, max_new_tokens);
    label(c, "Temperature", "0 = greedy: always the most likely token.");
    auto temperature = static_cast<float>(config.temperature);
    if (ImGui::SliderFloat("##temperature", &temperature, 0.0f, 2.0f,
                           temperature == 0 ? "0 (greedy)" : "%.2f"))
        config.temperature = static_cast<double>(static_cast<int>(temperature * 100 + 0.5f)) / 100;
    draw_mistake(c, "Temperature", config.temperature);
    if (config.temperature == 0) return;
    const RuleChoice* rule = choose_rule(c);
    if (rule != nullptr && rule->lossy)
        ImGui::TextUnformatted("lossy: the text may differ from the target's");
    if (rule != nullptr && rule->own_threshold) return;
    label(c, "Top p");
    auto top_p = static_cast<float>(config.top_p);
    if (ImGui::SliderFloat("##top_p", &top_p, 0.05f, 1.0f, "%.2f", ImGuiSliderFlags_AlwaysClamp))
        config.top_p = static_cast<double>(static_cast<int>(top_p * 100 + 0.5f)) / 100;
    label(c, "Top k", "0 = all tokens.");
    ImGui::DragInt("##top_k", &config.top_k, 1.0f, 0, 1000, config.top_k == 0 ? "all" : "%d");
    label(c, "Seed", "The same seed gives the same text with any drafter and head.");
    ImGui::InputScalar("##seed", ImGuiDataType_U64, &config.seed);
}

void edit_more(PanelContext& c) {
    RunConfig& config = c.config;
    static constexpr std::string_view inside[] = {"Drafter's file", "Head's file", "Context",     "Precision",
                                                  "Threads",        "Batch",       "Prompt file", "Limit",
                                                  "AR baseline",    "Calibration", "Capture file"};
    if (std::ranges::find(inside, c.ui.focus_field) != std::end(inside)) ImGui::SetNextItemOpen(true);
    if (!ImGui::TreeNodeEx("More", ImGuiTreeNodeFlags_SpanAvailWidth)) return;
    edit_checkpoint(c, true);
    edit_head_weights(c, true);
    drag(c, "Context", "##context", "Limit of a text's positions, prompt included. 0 = the model's.",
         config.context, 16.0f, 0, max_context, config.context == 0 ? "the model's" : "%d");
    label(c, "Precision", "Number format of the weights in computation.");
    choose_item("##Precision", std::array{"auto", "f32", "bf16", "int8", "int4"}, config.precision,
                std::identity());
    drag(c, "Threads", "##threads", "0 = all cores.", config.threads, 0.1f, 0, 256,
         config.threads == 0 ? "all cores" : "%d");
    drag(c, "Batch", "##batch", "Number of prompts of the prompt file decoded at the same time.",
         config.batch, 0.1f, 1, 64);
    label(c, "Prompt file", "JSONL file: \"prompt\" or \"turns\" per line; empty = the prompt above.");
    path_field(c, "##prompts", "none", config.prompts_file, {{".jsonl", ".json"}, true, {}});
    draw_mistake(c, "Prompt file", config.prompts_file);
    if (!config.prompts_file.empty())
        drag(c, "Limit", "##limit", "Maximum number of conversations of the prompt file; 0 = all.",
             config.limit, 0.2f, 0, 10000, config.limit == 0 ? "all" : "%d");
    drag(c, "AR baseline", "##baseline",
         "Conversations to decode without a drafter first, to measure the speed-up over the same prompts.",
         config.baseline, 0.1f, 0, 100, config.baseline == 0 ? "off" : "the first %d");
    drag(c, "Calibration", "##calibration",
         "Rounds per prompt in which the full head also drafts, to measure nu and kappa. In a run of few "
         "conversations it follows each text to its end if that is quick.",
         config.calibration_rounds, 0.1f, 0, 100,
         config.calibration_rounds == 0   ? "off"
         : config.calibration_rounds == 1 ? "%d round"
                                          : "%d rounds");
    label(c, "Capture file", "File to record the run to; empty = in memory only.");
    ImGui::InputTextWithHint("##save", "none", &config.save);
    draw_mistake(c, "Capture file", config.save);
    ImGui::Checkbox("No chat template", &config.raw);
    ImGui::Checkbox("Ignore the end token (EOS)", &config.ignore_eos);
    ImGui::TreePop();
}

void edit_breakpoints(PanelContext& c, SessionState& state) {
    CmdBreakpoints points = state.breakpoints;
    const int on = int{points.rejection_depth.has_value()} + int{points.out_of_vocabulary} +
                   int{points.slow_phase} + int{points.end_of_text} + int{!points.text.empty()} +
                   int{points.round.has_value()} + int{points.token_id.has_value()} +
                   int{points.step_ms.has_value()};
    const std::string title =
        on == 0 ? "Breakpoints###breakpoints" : fmt::format("Breakpoints: {}###breakpoints", on);
    if (!ImGui::TreeNodeEx(title.c_str(), ImGuiTreeNodeFlags_SpanAvailWidth)) return;
    ImGui::Checkbox("Rejection at depth", &state.break_on_rejection);
    show_tooltip(c.style, "Pauses after a round that rejects a draft token at this depth or a smaller one.");
    ImGui::SameLine();
    ImGui::TextUnformatted("≤");
    ImGui::SameLine();
    ImGui::SetNextItemWidth(c.style.em * 3);
    ImGui::DragInt("##rejection", &state.rejection_depth, 0.05f, 1, 16, "%d", ImGuiSliderFlags_AlwaysClamp);
    points.rejection_depth.reset();
    if (state.break_on_rejection) points.rejection_depth = state.rejection_depth;
    ImGui::Checkbox("Token outside the head's vocabulary", &points.out_of_vocabulary);
    show_tooltip(c.style, "Pauses after a round that commits a token outside the head's vocabulary.");
    ImGui::Checkbox("Phase slower than its p99", &points.slow_phase);
    show_tooltip(c.style,
                 "Pauses if a phase is slower than the p99 of the same phase and draft level in this run, "
                 "after 100 samples.");
    ImGui::Checkbox("End of text", &points.end_of_text);
    label(c, "Text contains", "Pauses after the round that completes this text.");
    ImGui::InputTextWithHint("##break_text", "off", &points.text);
    label(c, "Round", "Pauses after this round of a text; 0 = off.");
    int round = points.round.value_or(0);
    ImGui::InputInt("##break_round", &round);
    points.round = round > 0 ? std::optional(round) : std::nullopt;
    label(c, "Token id",
          "Pauses after a round that commits this token; -1 = off. The card of a node has its id.");
    int token = points.token_id.value_or(no_token);
    ImGui::InputInt("##break_token", &token);
    points.token_id = token >= 0 ? std::optional<TokenId>(token) : std::nullopt;
    label(c, "Step over, ms", "Pauses after a step whose phases take longer; 0 = off.");
    double step = points.step_ms.value_or(0);
    ImGui::InputDouble("##break_ms", &step, 0, 0, "%.3g");
    points.step_ms = step > 0 ? std::optional(step) : std::nullopt;
    ImGui::TreePop();
    if (points == state.breakpoints) return;
    state.breakpoints = points;
    c.commands.push_back(std::move(points));
}

/// Shows the stored run's settings above those of the next run.
void show_recorded(const PanelContext& c) {
    const std::optional<RecordedSettings> settings = recorded_settings(c.snapshot, c.ui.run_id);
    if (!settings) return;
    ImGui::TextWrapped("%s", settings->title.c_str());
    draw_hint(c.style, settings->details);
    ImGui::SeparatorText("next run");
}

void edit_model(PanelContext& c) {
    label(c, "Model", "GGUF file or Hugging Face folder; empty = the demo model.");
    const std::string demo = c.status.default_model.empty()
                                 ? "path of a GGUF file"
                                 : "demo: " + short_name(c.status.default_model, 22);
    path_field(c, "##model", demo.c_str(), c.config.model, {{".gguf"}, true, c.status.models},
               [&config = c.config, &drafters = c.status.drafters] {
                   adapt_to_model(config, find_traits(drafters, config.drafter).needs_weights);
               });
    draw_mistake(c, "Model", c.config.model);
}

}  // namespace

void draw_session(PanelContext& c) {
    auto& state = c.panel_state.get<SessionState>();
    ImGui::BeginChild("##scroll");
    show_recorded(c);
    edit_model(c);
    choose_drafter(c);
    edit_checkpoint(c, false);
    draw_mistake(c, "Drafter", c.config.drafter);
    choose_head(c);
    edit_tree(c, state.tree_as_text);
    if (const RunRow* run = c.snapshot.run(c.ui.run_id))
        if (const std::string text = memory_text(*run); !text.empty()) draw_hint(c.style, text);
    ImGui::SeparatorText("Prompt");
    ImGui::BeginDisabled(!c.config.prompts_file.empty());
    ImGui::InputTextMultiline("##prompt", &c.config.prompt,
                              ImVec2(-FLT_MIN, ImGui::GetTextLineHeight() * 4.6f),
                              ImGuiInputTextFlags_WordWrap);
    ImGui::EndDisabled();
    draw_mistake(c, "Prompt", c.config.prompt);
    edit_sampling(c);
    edit_more(c);
    edit_breakpoints(c, state);
    ImGui::Spacing();
    const bool idle = c.status.state == JobState::idle;
    if (start_button(c, "Run", c.status.checked->run, idle))
        c.commands.emplace_back(std::in_place_type<CmdStart>, c.config);
    if (!idle) show_tooltip(c.style, "A run is in progress. Stop it first.");
    ImGui::SameLine();
    if (ImGui::Button(state.copied ? "Copied##copy" : "Copy as command line##copy")) {
        ImGui::SetClipboardText(command_line(c).c_str());
        state.copied = true;
    }
    if (!ImGui::IsItemHovered()) state.copied = false;
    show_tooltip(c.style, command_line(c));
    draw_find_fastest(c);
    ImGui::EndChild();
}

}  // namespace draftscope
