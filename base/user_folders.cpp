#include "base/user_folders.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Returns an environment variable; "" if it is unset.
fs::path from_environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

fs::path home_folder() {
    if (fs::path home = from_environment("HOME"); !home.empty()) return home;
    std::vector<char> text(1 << 14);
    passwd entry{};
    passwd* found = nullptr;
    if (getpwuid_r(getuid(), &entry, text.data(), text.size(), &found) != 0 || found == nullptr) return {};
    return entry.pw_dir == nullptr ? fs::path() : fs::path(entry.pw_dir);
}

std::string expand_home(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool begins = i == 0 || text[i - 1] == ':' || text[i - 1] == '=' || text[i - 1] == ',';
        if (begins && text.substr(i).starts_with("~/"))
            out += home_folder().empty() ? "~" : home_folder().string();
        else
            out += text[i];
    }
    return out;
}

fs::path hub_cache_folder() {
    if (fs::path hub = from_environment("HF_HUB_CACHE"); !hub.empty()) return hub;
    if (const fs::path home = from_environment("HF_HOME"); !home.empty()) return home / "hub";
    const fs::path own = cache_folder();
    return own.empty() ? own : own.parent_path() / "huggingface" / "hub";
}

fs::path cache_folder() {
    if (const fs::path cache = from_environment("XDG_CACHE_HOME"); !cache.empty())
        return cache / "draftscope";
    const fs::path home = home_folder();
    return home.empty() ? fs::path() : home / ".cache" / "draftscope";
}

bool replace_file(const fs::path& path, std::string_view text) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    const fs::path partial = path.string() + "." + std::to_string(getpid()) + ".partial";
    {
        std::ofstream file(partial, std::ios::binary);
        file << text << std::flush;
        if (!file) return false;
    }
    fs::rename(partial, path, error);
    return !error;
}

}  // namespace draftscope
