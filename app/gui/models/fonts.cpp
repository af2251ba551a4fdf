#include "app/gui/models/fonts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "base/user_folders.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// A range of characters. `script` is the name that Noto's files have.
struct Script {
    char32_t first, last;
    std::string_view script;
};
constexpr Script scripts[] = {
    {0x0530, 0x058f, "Armenian"}, {0x0590, 0x05ff, "Hebrew"},     {0x0600, 0x06ff, "Arabic"},
    {0x0750, 0x077f, "Arabic"},   {0x0900, 0x097f, "Devanagari"}, {0x0980, 0x09ff, "Bengali"},
    {0x0a00, 0x0a7f, "Gurmukhi"}, {0x0a80, 0x0aff, "Gujarati"},   {0x0b80, 0x0bff, "Tamil"},
    {0x0c00, 0x0c7f, "Telugu"},   {0x0c80, 0x0cff, "Kannada"},    {0x0d00, 0x0d7f, "Malayalam"},
    {0x0d80, 0x0dff, "Sinhala"},  {0x0e00, 0x0e7f, "Thai"},       {0x0e80, 0x0eff, "Lao"},
    {0x1000, 0x109f, "Myanmar"},  {0x10a0, 0x10ff, "Georgian"},   {0x1100, 0x11ff, "CJK"},
    {0x1200, 0x137f, "Ethiopic"}, {0x1780, 0x17ff, "Khmer"},      {0x2e80, 0x9fff, "CJK"},
    {0xac00, 0xd7ff, "CJK"},      {0xf900, 0xfaff, "CJK"},        {0xfb50, 0xfdff, "Arabic"},
    {0xfe70, 0xfeff, "Arabic"},   {0xff00, 0xffef, "CJK"},        {0x1f000, 0x1faff, "Emoji"},
    {0x20000, 0x3ffff, "CJK"},
};

/// Returns the files that have a script, best first.
std::vector<std::string> font_names(std::string_view script) {
    if (script == "CJK")
        return {"NotoSansCJK-Regular.ttc",
                "NotoSansCJKsc-Regular.otf",
                "NotoSansSC-Regular.otf",
                "SourceHanSans.ttc",
                "SourceHanSansSC-Regular.otf",
                "DroidSansFallbackFull.ttf",
                "DroidSansFallback.ttf",
                "wqy-microhei.ttc",
                "wqy-zenhei.ttc"};
    if (script == "Emoji")
        return {"NotoEmoji-Regular.ttf", "NotoEmoji[wght].ttf", "Symbola.ttf",
                "Symbola.otf",           "Symbola_hint.ttf",    "DejaVuSans.ttf"};
    return {fmt::format("NotoSans{}-Regular.ttf", script),
            fmt::format("NotoSans{}[wght].ttf", script),
            fmt::format("NotoSans{}-VF.ttf", script),
            fmt::format("Lohit-{}.ttf", script),
            "DejaVuSans.ttf",
            "FreeSans.ttf",
            "FreeSans.otf"};
}

/// The tables of a font file, or of the first font of a collection.
class FontTables {
  public:
    explicit FontTables(const std::string& path) : file_(path, std::ios::binary) {
        if (number(4) == 0x74746366) {  // "ttcf"
            file_.seekg(12);
            file_.seekg(number(4) + 4);
        }
        const std::uint32_t tables = number(2);
        file_.seekg(6, std::ios::cur);
        for (std::uint32_t i = 0; i < tables && file_; ++i) {
            const std::uint32_t tag = number(4);
            number(4);
            offsets_[tag] = number(4);
            number(4);
        }
    }
    bool has(std::uint32_t tag) const { return offsets_.contains(tag); }
    /// Returns a 16-bit number of a table; 0 if the file ends before it.
    int word(std::uint32_t tag, std::uint32_t at) {
        file_.clear();
        file_.seekg(offsets_[tag] + at);
        const auto value = static_cast<std::int16_t>(number(2));
        return file_ ? value : 0;
    }

  private:
    std::uint32_t number(int bytes) {
        std::uint32_t value = 0;
        while (bytes-- > 0) value = value << 8 | static_cast<std::uint8_t>(file_.get());
        return value;
    }

    std::ifstream file_;
    std::map<std::uint32_t, std::uint32_t> offsets_;
};

/// Returns whether a font file has outlines that can be drawn.
bool has_outlines(const std::string& path) {
    const FontTables tables(path);
    return tables.has(0x676c7966) || tables.has(0x43464620);  // "glyf", "CFF "
}

}  // namespace

std::vector<std::string> font_folders() {
    std::vector<std::string> out = {"/usr/share/fonts", "/usr/local/share/fonts"};
    if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != 0)
        out.push_back(std::string(data) + "/fonts");
    if (const fs::path home = home_folder(); !home.empty())
        for (const char* own : {".local/share/fonts", ".fonts"}) out.push_back((home / own).string());
    return out;
}

std::vector<std::string> find_script_fonts(const std::vector<std::string>& folders) {
    std::map<std::string, std::string, std::less<>> files;
    for (const std::string& folder : folders) {
        std::error_code error;
        constexpr auto options = fs::directory_options::skip_permission_denied;
        for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end;
             at.increment(error))
            files.emplace(at->path().filename().string(), at->path().string());
    }
    std::vector<std::string> out;
    for (const Script& one : scripts)
        for (const std::string& name : font_names(one.script)) {
            const auto found = files.find(name);
            if (found == files.end() || !has_outlines(found->second)) continue;
            if (std::ranges::find(out, found->second) == out.end()) out.push_back(found->second);
            break;
        }
    return out;
}

float font_enlargement(const std::string& path) {
    constexpr float shipped = 1.32f, max_enlargement = 1.7f;  // of JetBrains Mono; our default
    constexpr std::uint32_t head = 0x68656164, hhea = 0x68686561;
    FontTables tables(path);
    const int em = tables.word(head, 18), height = tables.word(hhea, 4) - tables.word(hhea, 6);
    if (em <= 0) return 1;
    return std::clamp(static_cast<float>(height) / static_cast<float>(em) / shipped, 1.0f, max_enlargement);
}

std::string missing_font_notice(char32_t character) {
    const auto found = std::ranges::find_if(
        scripts, [&](const Script& one) { return one.first <= character && character <= one.last; });
    if (found == std::end(scripts)) return {};
    std::string lower(found->script), debian = "fonts-noto-core", fedora, arch = "noto-fonts";
    std::ranges::transform(lower, lower.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
    fedora = fmt::format("google-noto-sans-{}-fonts", lower);
    if (found->script == "CJK") debian = "fonts-noto-cjk", arch = "noto-fonts-cjk";
    if (found->script == "Emoji")
        debian = "fonts-symbola", fedora = "google-noto-emoji-fonts", arch = "ttf-symbola";
    return fmt::format(
        "no installed font has {} characters, which are shown by their code points: install {} (Debian, "
        "Ubuntu), {} (Fedora) or {} (Arch), and start the window again",
        found->script, debian, fedora, arch);
}

}  // namespace draftscope
