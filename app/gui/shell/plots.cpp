// Draws panels into pictures. Each panel fills a picture-sized window.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "app/gui/entry.h"
#include "app/gui/models/selection.h"
#include "app/gui/panels/panel.h"
#include "app/gui/shell/display.h"
#include "app/gui/shell/imgui_frame.h"
#include "app/gui/shell/theme.h"
#include "base/did_you_mean.h"
#include "base/tier_text.h"

namespace draftscope {
namespace {

/// Plots fit their axes to the contents of the previous frame.
constexpr int frames_until_settled = 4;

struct Plot {
    const char* name;
    const char* panel;
    const char* title;
    bool of_sweep = false;  ///< of the capture's sweep, else of a run
};
constexpr std::array plots = {
    Plot{"breakdown", "phases", "Where a step's time goes"},
    Plot{"latency", "latency", "Latency, and speed by context length"},
    Plot{"rejections", "rejections", "Why rounds ended, and the most missed tokens"},
    Plot{"plane", "plane", "Acceptance-cost plane"},
    Plot{"coverage", "coverage", "Coverage of the head's vocabulary"},
    Plot{"tree", "draft_tree", "Draft tree"},
    Plot{"sweep", "sweep", "Settings: front, and curves over their parameters", true},
};

const Panel& plot_panel(const Plot& plot) {
    return *std::ranges::find(panels(), std::string_view(plot.panel), &Panel::id);
}

Result<RowId> chosen_run(const Snapshot& snapshot, const PlotOptions& options) {
    if (snapshot.runs.empty()) return bad_input("the capture contains no runs; there is nothing to draw");
    if (options.run == 0) return newest_run(snapshot);
    if (snapshot.run(options.run) == nullptr)
        return bad_input("--run {}: no such run; the capture has runs {} to {}", options.run,
                         snapshot.runs.front().id, snapshot.runs.back().id);
    return options.run;
}

/// Returns an index into Snapshot::rounds; absent without rounds.
Result<std::optional<std::size_t>> chosen_round(const Snapshot& snapshot, RowId run, int wanted) {
    const RoundSpan span = rounds_of_run(snapshot, run);
    if (wanted < 0 || wanted > static_cast<int>(span.size()))
        return bad_input("--round {}: no such round; run {} has rounds 1 to {}", wanted, run, span.size());
    if (span.size() == 0) return std::optional<std::size_t>();
    if (wanted > 0) return std::optional(span.first + wanted - 1);
    std::size_t best = span.first;
    for (std::size_t i = span.first; i < span.end; ++i)
        if (snapshot.rounds[i].row.committed > snapshot.rounds[best].row.committed) best = i;
    return std::optional(best);
}

std::string sweep_subtitle(const SweepReport& sweep) {
    return fmt::format("{} settings on {}  ·  {} conversations  ·  predicted; costs: {}",
                       sweep.settings.size(), sweep.source, sweep.conversations, sweep.costs);
}

std::string subtitle(const RunRow& run, const Plot& plot, const Snapshot& snapshot,
                     const std::optional<std::size_t>& round) {
    std::string text = fmt::format("{}  ·  {}  ·  {}  ·  {}  ·  {}", run.target, run.drafter,
                                   run.head.empty() ? "no head" : run.head, run.tree, tier_text(run.tier));
    if (run.synthetic) text += "  ·  SYNTHETIC weights";
    if (run.acceptance != "real") text += "  ·  acceptance " + run.acceptance;
    if (std::string_view(plot.name) == "tree" && round) {
        const RoundRow& row = snapshot.rounds[*round].row;
        const PromptRow* prompt = snapshot.prompt(row.prompt_id);
        text += fmt::format("  ·  prompt {}, round {}: {} of {} drafts accepted",
                            prompt != nullptr ? prompt->ordinal + 1 : 0, row.ordinal + 1, row.accepted,
                            row.draft_tokens);
    }
    return text;
}

void draw_plot(const Plot& plot, const std::string& caption, PanelContext& context) {
    const ImGuiViewport* viewport = ImGui::GetMainViewport();
    ImGui::SetNextWindowPos(viewport->Pos);
    ImGui::SetNextWindowSize(viewport->Size);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {context.style.em, 0.8f * context.style.em});
    ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
    if (ImGui::Begin(
            "plot", nullptr,
            ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings)) {
        ImGui::PushFont(context.style.ui_bold, 1.25f * context.style.em);
        ImGui::TextUnformatted(plot.title);
        ImGui::PopFont();
        ImGui::TextDisabled("%s", caption.c_str());
        ImGui::Spacing();
        if (ImGui::BeginChild("panel")) plot_panel(plot).draw(context);
        ImGui::EndChild();
    }
    ImGui::End();
    ImGui::PopStyleVar(2);
}

/// Returns the plots to draw: by default those that the capture has rows for.
Result<std::vector<const Plot*>> wanted_plots(const PlotOptions& options, bool has_runs) {
    std::vector<const Plot*> wanted;
    for (const std::string& name : options.plots) {
        const auto plot = std::ranges::find(plots, name, &Plot::name);
        if (plot == plots.end()) {
            const std::vector<std::string> names = plot_names();
            return bad_input("--plots {}: unknown plot; use {}{}", name, fmt::join(names, ", "),
                             did_you_mean(name, std::vector<std::string_view>(names.begin(), names.end())));
        }
        wanted.push_back(&*plot);
    }
    if (wanted.empty())
        for (const Plot& plot : plots)
            if (plot.of_sweep ? !options.sweeps.empty() : has_runs) wanted.push_back(&plot);
    for (const Plot* plot : wanted)
        if (plot->of_sweep && options.sweeps.empty())
            return bad_input(
                "--plots sweep: the capture has no sweep; make one with draftscope sweep --save");
    if (wanted.empty()) return bad_input("the capture contains no runs; there is nothing to draw");
    return wanted;
}

/// Returns the path of each plot.
Result<std::vector<std::string>> target_files(const std::vector<const Plot*>& wanted,
                                              const std::string& out) {
    namespace fs = std::filesystem;
    if (out.ends_with(".png")) {
        if (wanted.size() != 1)
            return bad_input(
                "--out {}: one file cannot hold {} plots; name a folder, or select one plot with --plots",
                out, wanted.size());
        return std::vector<std::string>{out};
    }
    std::error_code error;
    if (fs::exists(out, error) && !fs::is_directory(out, error))
        return bad_input("--out {}: exists and is not a folder", out);
    std::vector<std::string> files;
    for (const Plot* plot : wanted) files.push_back((fs::path(out) / plot->name).string() + ".png");
    return files;
}

/// Writes the pictures, in a new folder if needed. If one fails, those already written are removed.
Status write_pictures(const std::vector<std::string>& files, const std::vector<Image>& images,
                      const std::string& out) {
    namespace fs = std::filesystem;
    std::error_code error;
    const bool created = !out.ends_with(".png") && fs::create_directories(out, error);
    if (error) return failed("--out {}: cannot create the folder: {}", out, error.message());
    for (std::size_t i = 0; i < files.size(); ++i) {
        Status written = write_png(files[i], images[i]);
        if (written.ok()) continue;
        for (std::size_t done = 0; done < i; ++done) fs::remove(files[done], error);
        if (created) fs::remove(out, error);
        return written;
    }
    return {};
}

}  // namespace

std::vector<std::string> plot_names() {
    std::vector<std::string> names;
    for (const Plot& plot : plots) names.emplace_back(plot.name);
    return names;
}

Result<std::vector<std::string>> render_plots(const Snapshot& snapshot, const PlotOptions& options) {
    if (options.theme != "dark" && options.theme != "light")
        return bad_input("--theme {}: unknown theme. Use dark or light", options.theme);
    if (options.scale < 0.5 || options.scale > 4)
        return bad_input("--scale {}: must be between 0.5 and 4", options.scale);
    DS_ASSIGN(const std::vector<const Plot*> wanted, wanted_plots(options, !snapshot.runs.empty()));
    RowId run = 0;
    std::optional<std::size_t> round;
    if (!std::ranges::all_of(wanted, [](const Plot* plot) { return plot->of_sweep; })) {
        DS_ASSIGN(run, chosen_run(snapshot, options));
        DS_ASSIGN(round, chosen_round(snapshot, run, options.round));
    }
    DS_ASSIGN(const std::vector<std::string> files, target_files(wanted, options.out));

    const ImGuiContexts contexts("");
    DS_ASSIGN(const std::unique_ptr<Display> display, make_offscreen_display(options.width, options.height));
    Style style;
    load_fonts(style, find_assets());
    apply_theme(style, options.theme == "light" ? ThemeId::light : ThemeId::dark,
                static_cast<float>(options.scale));
    UiState ui;
    ui.source = snapshot.source;
    ui.newest_run = newest_run(snapshot);
    ui.run_id = run;
    ui.follow = false;
    ui.data_key = 1;
    std::vector<Image> images;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        JobStatus status;
        status.sweeps = options.sweeps;
        RunConfig config;
        Commands commands;
        PanelState panel_state;
        PanelContext context{snapshot, status, ui, config, commands, style, panel_state, true};
        ui.round = std::string_view(wanted[i]->name) == "tree" ? round : std::nullopt;
        const std::string caption = wanted[i]->of_sweep
                                        ? sweep_subtitle(*options.sweeps.front())
                                        : subtitle(*snapshot.run(run), *wanted[i], snapshot, round);
        for (int frame = 0; frame < frames_until_settled; ++frame) {
            display->new_frame();
            ImGui::NewFrame();
            style.em = ImGui::GetFontSize();
            ui.fit_requested = frame == 1;
            draw_plot(*wanted[i], caption, context);
            ImGui::Render();
            display->present(ImGui::GetDrawData(), style.colours.ground);
        }
        DS_ASSIGN(Image image, display->read_pixels());
        images.push_back(std::move(image));
    }
    DS_TRY(write_pictures(files, images, options.out));
    return files;
}

}  // namespace draftscope
