#include "app/jobs/resolve/hub_cache.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "app/jobs/resolve/artefacts.h"
#include "base/user_folders.h"
#include "engine/formats/synthetic_model.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Returns whether `text` can be ORG/NAME rather than a path.
bool is_hub_id(const std::string& text) {
    const auto allowed = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
    };
    constexpr std::array endings = {".gguf", ".safetensors", ".bin", ".pt", ".json"};
    return std::count(text.begin(), text.end(), '/') == 1 &&
           std::isalnum(static_cast<unsigned char>(text[0])) != 0 && text.back() != '/' &&
           std::all_of(text.begin(), text.end(), allowed) &&
           std::none_of(endings.begin(), endings.end(), [&](const char* end) { return text.ends_with(end); });
}

/// Returns the snapshot that refs/main names, or the only one; empty if there is none.
fs::path find_snapshot(const fs::path& repository) {
    std::error_code error;
    std::string revision;
    std::ifstream(repository / "refs" / "main") >> revision;
    const fs::path snapshots = repository / "snapshots";
    if (!revision.empty() && fs::is_directory(snapshots / revision, error)) return snapshots / revision;
    fs::directory_iterator at(snapshots, error), end;
    if (error || at == end) return {};
    const fs::path only = at->path();
    return ++at == end ? only : fs::path();
}

}  // namespace

Result<std::string> find_checkpoint(const std::string& option, const std::string& given, Notes& notes) {
    std::string path = expand_home(given);
    if (is_synthetic_model(path) || file_exists(path)) return path;
    if (!is_hub_id(path)) return bad_input("{} {}: no such file or folder", option, path);
    std::string name = "models--" + path;
    name.replace(name.find('/'), 1, "--");
    const fs::path snapshot = find_snapshot(hub_cache_folder() / name);
    if (snapshot.empty())
        return bad_input(
            "{0} {1}: no such file or folder, and no such model in the hub's cache {2}; download it first: "
            "hf download {1}",
            option, path, hub_cache_folder().string());
    add_note(notes, "{} {}: is not a local path; taken from the hub's cache: {}", option, path,
             snapshot.string());
    return snapshot.string();
}

}  // namespace draftscope
