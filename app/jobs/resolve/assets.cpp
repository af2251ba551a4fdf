#include "app/jobs/resolve/assets.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/user_folders.h"

#ifndef DRAFTSCOPE_SOURCE_ASSETS
#define DRAFTSCOPE_SOURCE_ASSETS ""
#endif

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* demo_model_file = "SmolLM2-135M-Instruct.Q4_1.gguf";

fs::path executable_folder() {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    return error ? fs::path() : self.parent_path();
}

}  // namespace

std::string find_asset(const std::string& relative_path) {
    std::vector<fs::path> search_folders;
    if (const char* given = std::getenv("DRAFTSCOPE_ASSETS"); given != nullptr && *given != '\0')
        search_folders.emplace_back(given);
    const fs::path program_folder = executable_folder();
    if (!program_folder.empty()) {
        search_folders.push_back(program_folder / "assets");
        search_folders.push_back(program_folder / ".." / "share" / "draftscope");
    }
    search_folders.emplace_back(DRAFTSCOPE_SOURCE_ASSETS);
    for (const fs::path& folder : search_folders) {
        std::error_code error;
        if (!folder.empty() && fs::exists(folder / relative_path, error))
            return (folder / relative_path).lexically_normal().string();
    }
    return {};
}

std::string find_demo_model() {
    if (const char* given = std::getenv("DRAFTSCOPE_DEMO_MODEL"); given != nullptr && *given != '\0')
        return given;
    std::error_code error;
    const fs::path cached = cache_folder() / "models" / demo_model_file;
    if (fs::exists(cached, error)) return cached.string();
    return find_asset(std::string("models/") + demo_model_file);
}

}  // namespace draftscope
