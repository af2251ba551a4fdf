#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "app/jobs/run/run_job.h"
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
    std::vector<fs::path> places;
    if (const char* given = std::getenv("DRAFTSCOPE_ASSETS"); given != nullptr && *given != '\0') {
        places.emplace_back(given);
    }
    const fs::path beside = executable_folder();
    if (!beside.empty()) {
        places.push_back(beside / "assets");
        places.push_back(beside / ".." / "share" / "draftscope");
    }
    places.emplace_back(DRAFTSCOPE_SOURCE_ASSETS);
    for (const fs::path& place : places) {
        std::error_code error;
        if (!place.empty() && fs::exists(place / relative_path, error)) {
            return (place / relative_path).lexically_normal().string();
        }
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
