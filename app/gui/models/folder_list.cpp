#include "app/gui/models/folder_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/user_folders.h"

namespace draftscope {

namespace fs = std::filesystem;

Result<std::vector<FolderEntry>> list_folder(const std::string& folder,
                                             const std::vector<std::string>& endings) {
    std::error_code error;
    fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
    if (error) return bad_input("{}: cannot be listed: {}", folder, error.message());
    std::vector<FolderEntry> entries;
    for (; entry != fs::directory_iterator(); entry.increment(error)) {
        if (error) break;
        FolderEntry found{entry->path().filename().string(), entry->is_directory(error), 0};
        if (found.name.empty() || found.name.front() == '.') continue;
        const bool wanted =
            endings.empty() || std::any_of(endings.begin(), endings.end(),
                                           [&](const auto& ending) { return found.name.ends_with(ending); });
        if (!found.folder && !wanted) continue;
        if (!found.folder) found.bytes = entry->file_size(error);
        if (error) found.bytes = 0;
        entries.push_back(std::move(found));
    }
    std::sort(entries.begin(), entries.end(), [](const FolderEntry& a, const FolderEntry& b) {
        return a.folder != b.folder ? a.folder : a.name < b.name;
    });
    return entries;
}

std::string resolve_path(const std::string& typed, const std::string& folder) {
    fs::path path = typed;
    if (typed == "~" || typed.starts_with("~/")) {
        const fs::path home = home_folder();
        path = (home.empty() ? fs::path("/") : home) / typed.substr(typed.size() > 1 ? 2 : 1);
    } else if (path.is_relative()) {
        path = fs::path(folder) / path;
    }
    std::string text = path.lexically_normal().string();
    if (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
}

std::string parent_folder(const std::string& folder) {
    const std::string parent = fs::path(folder).parent_path().string();
    return parent.empty() ? "/" : parent;
}

std::string size_text(std::uint64_t bytes) {
    const auto value = static_cast<double>(bytes);
    if (bytes < 1000) return fmt::format("{} B", bytes);
    if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value * 1e-3);
    if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value * 1e-6);
    return fmt::format("{:.2f} GB", value * 1e-9);
}

}  // namespace draftscope
