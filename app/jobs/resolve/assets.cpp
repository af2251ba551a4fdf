#include "app/jobs/resolve/assets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/jobs/resolve/artefacts.h"
#include "base/child_process.h"
#include "base/user_folders.h"
#include "engine/formats/synthetic_model.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* demo_model_file = "SmolLM2-135M-Instruct.Q4_1.gguf";

fs::path executable_folder() {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    return error ? fs::path() : self.parent_path();
}

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

fs::path packed_folder() {
    const fs::path cache = cache_folder();
    return cache.empty() ? fs::path() : cache / "packed";
}

}  // namespace

std::string find_asset(const std::string& relative_path) {
    std::vector<fs::path> search_folders;
    if (const char* given = std::getenv("DRAFTSCOPE_ASSETS"); given != nullptr && *given != '\0')
        search_folders.emplace_back(given);
    const fs::path program_folder = executable_folder();
    if (!program_folder.empty()) {
        search_folders.push_back(program_folder / "assets");
        search_folders.push_back(program_folder / ".." / "share" / "draftscope" / "assets");
    }
    search_folders.emplace_back(DRAFTSCOPE_SOURCE_ASSETS);
    for (const fs::path& folder : search_folders) {
        std::error_code error;
        if (!folder.empty() && fs::exists(folder / relative_path, error))
            return (folder / relative_path).lexically_normal().string();
    }
    return {};
}

std::vector<std::string> list_assets(const std::string& folder, const std::string& ending) {
    std::vector<std::string> paths;
    const std::string found = find_asset(folder);
    std::error_code error;
    if (found.empty()) return paths;
    for (const auto& entry : fs::directory_iterator(found, error))
        if (entry.path().extension() == ending) paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::string find_demo_model() {
    if (const char* given = std::getenv("DRAFTSCOPE_DEMO_MODEL"); given != nullptr && *given != '\0')
        return given;
    std::error_code error;
    const fs::path cached = cache_folder() / "models" / demo_model_file;
    if (fs::exists(cached, error)) return cached.string();
    return find_asset(std::string("models/") + demo_model_file);
}

std::string model_fetcher() {
    return find_asset("../tools/fetch_deps.sh");
}

Status fetch_demo_model(const JobHooks& hooks) {
    const std::string script = model_fetcher();
    if (script.empty()) return failed("the demo model is missing, and so is the script that fetches it");
    hooks.report(-1, "fetching the demo model, 93 MB, once");
    std::string last;
    DS_ASSIGN(const int code, run_child_process(
                                  {script, "model"}, [&](std::string_view line) { last = line; },
                                  [&] { return hooks.is_cancelled(); }));
    DS_TRY(hooks.check());
    if (code == 0 && !find_demo_model().empty()) return {};
    return failed(
        "the demo model could not be fetched: {} model ended with exit code {}{}; run it where there is a "
        "network",
        script, code, last.empty() ? "" : " (" + last + ")");
}

std::vector<std::string> list_cached_models() {
    std::vector<std::string> paths;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(cache_folder() / "models", error))
        if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
    for (const auto& model : fs::directory_iterator(hub_cache_folder(), error))
        for (const auto& snapshot : fs::directory_iterator(model.path() / "snapshots", error))
            if (fs::exists(snapshot.path() / "config.json", error)) paths.push_back(snapshot.path().string());
    std::ranges::sort(paths);
    return paths;
}

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

Result<WeightCacheOptions> weight_cache_options() {
    WeightCacheOptions options;
    options.mode = WeightCacheOptions::Mode::if_smaller;
    options.folder = packed_folder().string();
    const char* setting = std::getenv("DRAFTSCOPE_WEIGHT_CACHE");
    if (setting == nullptr || *setting == '\0') return options;
    const auto mode = parse_weight_cache_mode(setting);
    if (!mode.ok()) return bad_input("DRAFTSCOPE_WEIGHT_CACHE: {}", mode.error().message);
    options.mode = *mode;
    return options;
}

std::vector<PackedWeightsFile> list_packed_weights() {
    std::vector<PackedWeightsFile> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(packed_folder(), error)) {
        const std::uint64_t bytes = entry.file_size(error);
        if (!error) out.push_back({entry.path().string(), bytes});
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return out;
}

}  // namespace draftscope
