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
    ImFontConfig config;
    config.MergeMode = true;
    for (const std::string& path : fonts) {
        config.ExtraSizeScale = font_enlargement(path);
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

/// Sets ImGui's colours: for each of ours, the elements in it.
void set_colours(ImVec4* c, const Palette& p) {
    const auto paint = [c](std::initializer_list<ImGuiCol> elements, std::uint32_t rgb, float alpha = 1.0f) {
        for (const ImGuiCol element : elements) c[element] = to_vec(rgb, alpha);
    };
    paint({ImGuiCol_Text, ImGuiCol_InputTextCursor}, p.text);
    paint({ImGuiCol_TextDisabled, ImGuiCol_ScrollbarGrabHovered}, p.text_dim);
    paint({ImGuiCol_MenuBarBg, ImGuiCol_TitleBg, ImGuiCol_TitleBgActive, ImGuiCol_TitleBgCollapsed,
           ImGuiCol_Tab, ImGuiCol_TabDimmed, ImGuiCol_DockingEmptyBg},
          p.ground);
    paint({ImGuiCol_WindowBg, ImGuiCol_PopupBg, ImGuiCol_TabSelected, ImGuiCol_TabDimmedSelected}, p.panel);
    paint({ImGuiCol_ChildBg, ImGuiCol_ScrollbarBg, ImGuiCol_TableRowBg}, p.panel, 0.0f);
    paint({ImGuiCol_FrameBg, ImGuiCol_Button, ImGuiCol_CheckboxSelectedBg, ImGuiCol_TableHeaderBg}, p.raised);
    paint({ImGuiCol_TableRowBgAlt}, p.raised, 0.35f);
    paint({ImGuiCol_FrameBgHovered, ImGuiCol_FrameBgActive, ImGuiCol_ButtonHovered, ImGuiCol_HeaderHovered,
           ImGuiCol_ScrollbarGrab, ImGuiCol_TabHovered},
          p.raised_hot);
    paint({ImGuiCol_Border, ImGuiCol_Separator, ImGuiCol_ResizeGrip, ImGuiCol_TableBorderStrong,
           ImGuiCol_TabDimmedSelectedOverline},
          p.line);
    paint({ImGuiCol_TableBorderLight}, p.line, 0.6f);
    paint({ImGuiCol_ButtonActive, ImGuiCol_Header, ImGuiCol_HeaderActive, ImGuiCol_TextSelectedBg},
          p.accent_ground);
    paint({ImGuiCol_CheckMark, ImGuiCol_ScrollbarGrabActive, ImGuiCol_ResizeGripHovered,
           ImGuiCol_ResizeGripActive, ImGuiCol_SeparatorHovered, ImGuiCol_SeparatorActive,
           ImGuiCol_TabSelectedOverline, ImGuiCol_TextLink, ImGuiCol_NavCursor, ImGuiCol_PlotLines,
           ImGuiCol_PlotHistogram, ImGuiCol_NavWindowingHighlight},
          p.accent);
    paint({ImGuiCol_DockingPreview}, p.accent, 0.4f);
    paint({ImGuiCol_SliderGrab, ImGuiCol_SliderGrabActive}, p.slider);
    paint({ImGuiCol_ModalWindowDimBg}, 0x000000, 0.45f);
    paint({ImGuiCol_NavWindowingDimBg}, 0x000000, 0.3f);
    paint({ImGuiCol_BorderShadow}, 0x000000, 0.0f);
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
    s.Colors[ImPlotCol_LegendBg] = to_vec(p.panel, 0.9f);
    for (const ImPlotCol text : {ImPlotCol_LegendText, ImPlotCol_TitleText, ImPlotCol_InlayText})
        s.Colors[text] = to_vec(p.text);
    for (const ImPlotCol dim : {ImPlotCol_AxisText, ImPlotCol_Crosshairs}) s.Colors[dim] = to_vec(p.text_dim);
    for (const ImPlotCol line : {ImPlotCol_PlotBorder, ImPlotCol_LegendBorder, ImPlotCol_AxisTick})
        s.Colors[line] = to_vec(p.line);
    s.Colors[ImPlotCol_AxisGrid] = to_vec(p.line, 0.6f);
    s.Colors[ImPlotCol_Selection] = to_vec(p.accent);
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
    set_colours(pristine.Colors, style.colours);
    pristine.ScaleAllSizes(scale);
    pristine.FontSizeBase = body_size;
    pristine.FontScaleMain = scale;
    ImGui::GetStyle() = pristine;
    set_plot_style(style.colours, scale);
    add_colormap(theme);
    style.em = body_size * scale;
}

}  // namespace draftscope
