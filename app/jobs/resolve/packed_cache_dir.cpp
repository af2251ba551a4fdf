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
    options.when = WeightCacheOptions::When::pays;
    options.folder = packed_folder().string();
    const char* asked = std::getenv("DRAFTSCOPE_WEIGHT_CACHE");
    if (asked == nullptr || *asked == '\0') return options;
    const auto when = weight_cache_from(asked);
    if (!when.ok()) return bad_input("DRAFTSCOPE_WEIGHT_CACHE: {}", when.error().message);
    options.when = *when;
    return options;
}

std::vector<KeptWeights> kept_weights() {
    std::vector<KeptWeights> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(packed_folder(), error)) {
        const std::uint64_t bytes = entry.file_size(error);
        if (!error) out.push_back({entry.path().string(), bytes});
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return out;
}

}  // namespace draftscope
