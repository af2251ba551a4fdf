#include "app/jobs/resolve/packed_cache_dir.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/user_folders.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

fs::path packed_folder() {
    const fs::path cache = cache_folder();
    return cache.empty() ? fs::path() : cache / "packed";
}

}  // namespace

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
