#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/weights/weight_cache.h"

namespace draftscope {

/// Returns the path of an asset; "" if not found. Searches DRAFTSCOPE_ASSETS, the executable's folder, the
/// source tree and the user's cache folder.
std::string find_asset(const std::string& relative_path);
/// Returns the paths of the assets in a folder whose names end with `ending`, sorted.
std::vector<std::string> list_assets(const std::string& folder, const std::string& ending);
std::string find_demo_model();
/// Returns the script that fetches the demo model; "" if it is not installed.
std::string model_fetcher();
/// Fetches the demo model into the cache folder, with the installed script. Blocks.
Status fetch_demo_model(const JobHooks& hooks);
/// Returns the GGUF files of the user's cache folder and the model folders of the local hub cache, sorted.
std::vector<std::string> list_cached_models();

/// Returns the path of a checkpoint that `option` names. An id of the hub such as "Qwen/Qwen3-0.6B" becomes
/// its snapshot in the local cache, which is a note. Expands "~/".
Result<std::string> find_checkpoint(const std::string& option, const std::string& given, Notes& notes);

/// Returns the options of the packed-weight cache from DRAFTSCOPE_WEIGHT_CACHE: auto (default: cache if that
/// shortens a load), on, or off. If a model's folder is not writable, the user's cache folder is used.
Result<WeightCacheOptions> weight_cache_options();

struct PackedWeightsFile {
    std::string path;
    std::uint64_t bytes = 0;
};
/// Returns the packed weights in the user's cache folder. Does not search the folders of models.
std::vector<PackedWeightsFile> list_packed_weights();

}  // namespace draftscope
