#include "app/gui/shell/theme.h"

#include <implot.h>

#include <cfloat>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "app/gui/models/fonts.h"
#include "base/notes.h"

namespace draftscope {
namespace {

constexpr float body_size = 15.0f;

ImFont* load_font(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return nullptr;
    ImFontConfig config;
    config.PixelSnapH = false;
    return ImGui::GetIO().Fonts->AddFontFromFileTTF(path.c_str(), 0.0f, &config);
}

/// Merges system fonts for scripts that the shipped fonts lack.
void merge_fallbacks(const std::vector<std::string>& fonts) {
    for (const std::string& path : fonts) {
        ImFontConfig config;
        config.MergeMode = true;
        ImGui::GetIO().Fonts->AddFontFromFileTTF(path.c_str(), 0.0f, &config);
    }
}

void set_metrics(ImGuiStyle& s) {
    s.WindowPadding = ImVec2(10, 8);
    s.FramePadding = ImVec2(8, 4);
    s.ItemSpacing = ImVec2(8, 6);
    s.ItemInnerSpacing = ImVec2(6, 4);
    s.CellPadding = ImVec2(6, 3);
    s.IndentSpacing = 16;
    s.ScrollbarSize = 12;
    s.GrabMinSize = 12;
    s.WindowRounding = 4;
    s.ChildRounding = 3;
    s.FrameRounding = 3;
    s.PopupRounding = 4;
    s.ScrollbarRounding = 6;
    s.GrabRounding = 3;
    s.TabRounding = 3;
    s.WindowBorderSize = 0;
    s.ChildBorderSize = 1;
    s.PopupBorderSize = 1;
    s.FrameBorderSize = 0;
    s.TabBorderSize = 0;
    s.TabBarBorderSize = 1;
    s.TabBarOverlineSize = 2;
    s.DockingSeparatorSize = 4;
    s.SeparatorTextBorderSize = 1;
    s.SeparatorTextPadding = ImVec2(0, 3);
    s.WindowMenuButtonPosition = ImGuiDir_None;
    s.DockingNodeHasCloseButton = false;
    s.TabCloseButtonMinWidthSelected = 0;
    s.TabCloseButtonMinWidthUnselected = FLT_MAX;  // a click on a narrow tab must select it
    s.HoverDelayNormal = 0.35f;
    s.DisabledAlpha = 0.45f;
}

void set_widget_colours(ImVec4* c, const Palette& p) {
    c[ImGuiCol_Text] = to_vec(p.text);
    c[ImGuiCol_TextDisabled] = to_vec(p.text_dim);
    c[ImGuiCol_FrameBg] = to_vec(p.raised);
    c[ImGuiCol_FrameBgHovered] = to_vec(p.raised_hot);
    c[ImGuiCol_FrameBgActive] = to_vec(p.raised_hot);
    c[ImGuiCol_Button] = to_vec(p.raised);
    c[ImGuiCol_ButtonHovered] = to_vec(p.raised_hot);
    c[ImGuiCol_ButtonActive] = to_vec(p.accent_ground);
    c[ImGuiCol_Header] = to_vec(p.accent_ground);
    c[ImGuiCol_HeaderHovered] = to_vec(p.raised_hot);
    c[ImGuiCol_HeaderActive] = to_vec(p.accent_ground);
    c[ImGuiCol_CheckMark] = to_vec(p.accent);
    c[ImGuiCol_CheckboxSelectedBg] = to_vec(p.raised);
    c[ImGuiCol_SliderGrab] = to_vec(p.slider);
    c[ImGuiCol_SliderGrabActive] = to_vec(p.slider);
    c[ImGuiCol_ScrollbarBg] = to_vec(p.panel, 0.0f);
    c[ImGuiCol_ScrollbarGrab] = to_vec(p.raised_hot);
    c[ImGuiCol_ScrollbarGrabHovered] = to_vec(p.text_dim);
    c[ImGuiCol_ScrollbarGrabActive] = to_vec(p.accent);
    c[ImGuiCol_ResizeGrip] = to_vec(p.line);
    c[ImGuiCol_ResizeGripHovered] = to_vec(p.accent);
    c[ImGuiCol_ResizeGripActive] = to_vec(p.accent);
    c[ImGuiCol_TextSelectedBg] = to_vec(p.accent_ground);
    c[ImGuiCol_InputTextCursor] = to_vec(p.text);
    c[ImGuiCol_TextLink] = to_vec(p.accent);
    c[ImGuiCol_NavCursor] = to_vec(p.accent);
    c[ImGuiCol_PlotLines] = to_vec(p.accent);
    c[ImGuiCol_PlotHistogram] = to_vec(p.accent);
}

void set_window_colours(ImVec4* c, const Palette& p) {
    c[ImGuiCol_WindowBg] = to_vec(p.panel);
    c[ImGuiCol_ChildBg] = to_vec(p.panel, 0.0f);
    c[ImGuiCol_PopupBg] = to_vec(p.panel);
    c[ImGuiCol_Border] = to_vec(p.line);
    c[ImGuiCol_BorderShadow] = ImVec4(0, 0, 0, 0);
    c[ImGuiCol_MenuBarBg] = to_vec(p.ground);
    c[ImGuiCol_TitleBg] = to_vec(p.ground);
    c[ImGuiCol_TitleBgActive] = to_vec(p.ground);
    c[ImGuiCol_TitleBgCollapsed] = to_vec(p.ground);
    c[ImGuiCol_Separator] = to_vec(p.line);
    c[ImGuiCol_SeparatorHovered] = to_vec(p.accent);
    c[ImGuiCol_SeparatorActive] = to_vec(p.accent);
    c[ImGuiCol_Tab] = to_vec(p.ground);
    c[ImGuiCol_TabHovered] = to_vec(p.raised_hot);
    c[ImGuiCol_TabSelected] = to_vec(p.panel);
    c[ImGuiCol_TabSelectedOverline] = to_vec(p.accent);
    c[ImGuiCol_TabDimmed] = to_vec(p.ground);
    c[ImGuiCol_TabDimmedSelected] = to_vec(p.panel);
    c[ImGuiCol_TabDimmedSelectedOverline] = to_vec(p.line);
    c[ImGuiCol_DockingPreview] = to_vec(p.accent, 0.4f);
    c[ImGuiCol_DockingEmptyBg] = to_vec(p.ground);
    c[ImGuiCol_TableHeaderBg] = to_vec(p.raised);
    c[ImGuiCol_TableBorderStrong] = to_vec(p.line);
    c[ImGuiCol_TableBorderLight] = to_vec(p.line, 0.6f);
    c[ImGuiCol_TableRowBg] = to_vec(p.panel, 0.0f);
    c[ImGuiCol_TableRowBgAlt] = to_vec(p.raised, 0.35f);
    c[ImGuiCol_ModalWindowDimBg] = to_vec(0x000000, 0.45f);
    c[ImGuiCol_NavWindowingDimBg] = to_vec(0x000000, 0.3f);
    c[ImGuiCol_NavWindowingHighlight] = to_vec(p.accent);
}

void set_plot_style(const Palette& p, float scale) {
    ImPlotStyle& s = ImPlot::GetStyle();
    s = ImPlotStyle();
    s.PlotBorderSize = 1;
    s.PlotPadding = ImVec2(6 * scale, 6 * scale);
    s.LabelPadding = ImVec2(4 * scale, 4 * scale);
    s.LegendPadding = ImVec2(8 * scale, 8 * scale);
    s.LegendInnerPadding = ImVec2(6 * scale, 4 * scale);
    s.PlotMinSize = ImVec2(80 * scale, 60 * scale);
    s.MajorTickLen = ImVec2(4 * scale, 4 * scale);
    s.MinorTickLen = ImVec2(0, 0);
    s.MinorAlpha = 0.0f;
    s.FitPadding = ImVec2(0.05f, 0.08f);
    s.Colors[ImPlotCol_FrameBg] = to_vec(p.panel, 0.0f);
    s.Colors[ImPlotCol_PlotBg] = to_vec(p.panel);
    s.Colors[ImPlotCol_PlotBorder] = to_vec(p.line);
    s.Colors[ImPlotCol_LegendBg] = to_vec(p.panel, 0.9f);
    s.Colors[ImPlotCol_LegendBorder] = to_vec(p.line);
    s.Colors[ImPlotCol_LegendText] = to_vec(p.text);
    s.Colors[ImPlotCol_TitleText] = to_vec(p.text);
    s.Colors[ImPlotCol_InlayText] = to_vec(p.text);
    s.Colors[ImPlotCol_AxisText] = to_vec(p.text_dim);
    s.Colors[ImPlotCol_AxisGrid] = to_vec(p.line, 0.6f);
    s.Colors[ImPlotCol_AxisTick] = to_vec(p.line);
    s.Colors[ImPlotCol_Selection] = to_vec(p.accent);
    s.Colors[ImPlotCol_Crosshairs] = to_vec(p.text_dim);
}

void add_colormap(ThemeId theme) {
    static constexpr std::uint32_t okabe_ito[] = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7,
                                                  0xE69F00, 0x56B4E9, 0xF0E442};
    const char* name = theme == ThemeId::dark ? "Okabe-Ito dark" : "Okabe-Ito light";
    ImPlotColormap map = ImPlot::GetColormapIndex(name);
    if (map < 0) {
        std::vector<ImU32> colours;
        for (std::uint32_t rgb : okabe_ito) colours.push_back(to_im(data_colour(rgb, theme)));
        map = ImPlot::AddColormap(name, colours.data(), static_cast<int>(colours.size()));
    }
    ImPlot::GetStyle().Colormap = map;
}

}  // namespace

std::string find_assets() {
    namespace fs = std::filesystem;
    std::vector<fs::path> candidates;
    if (const char* folder = std::getenv("DRAFTSCOPE_ASSETS"); folder != nullptr)
        candidates.emplace_back(folder);
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
        candidates.push_back(program.parent_path() / "assets");
        candidates.push_back(program.parent_path() / "../share/draftscope/assets");
    }
    candidates.emplace_back(DRAFTSCOPE_ASSETS_DIR);
    for (const fs::path& candidate : candidates)
        if (fs::is_directory(candidate / "fonts", error)) return candidate.string();
    return "";
}

bool Style::has_glyph(char32_t code) const {
    if (code <= IM_UNICODE_CODEPOINT_MAX && ui->IsGlyphInFont(static_cast<ImWchar>(code)) &&
        mono->IsGlyphInFont(static_cast<ImWchar>(code)))
        return true;
    if (const std::string notice = missing_font_notice(code); !notice.empty()) say_notes({notice});
    return false;
}

void load_fonts(Style& style, const std::string& assets) {
    const std::string folder = assets + "/fonts/";
    const std::vector<std::string> fallbacks = find_script_fonts(font_folders());
    style.ui = load_font(folder + "Inter-Regular.otf");
    if (style.ui == nullptr) style.ui = ImGui::GetIO().Fonts->AddFontDefaultVector();
    merge_fallbacks(fallbacks);
    style.ui_bold = load_font(folder + "Inter-SemiBold.otf");
    if (style.ui_bold == nullptr) style.ui_bold = style.ui;
    style.mono = load_font(folder + "JetBrainsMono-Regular.ttf");
    if (style.mono == nullptr)
        style.mono = style.ui;
    else
        merge_fallbacks(fallbacks);
}

void apply_theme(Style& style, ThemeId theme, float scale) {
    style.theme = theme;
    style.colours = palette(theme);
    ImGuiStyle pristine;
    set_metrics(pristine);
    set_widget_colours(pristine.Colors, style.colours);
    set_window_colours(pristine.Colors, style.colours);
    pristine.ScaleAllSizes(scale);
    pristine.FontSizeBase = body_size;
    pristine.FontScaleMain = scale;
    ImGui::GetStyle() = pristine;
    set_plot_style(style.colours, scale);
    add_colormap(theme);
    style.em = body_size * scale;
}

}  // namespace draftscope
