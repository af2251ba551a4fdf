#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/weights/weight_cache.h"

namespace draftscope {

/// Returns the options of the packed-weight cache from DRAFTSCOPE_WEIGHT_CACHE: auto (default: cache if that
/// shortens a load), on, or off. If a model's folder is not writable, the user's cache folder is used.
Result<WeightCacheOptions> weight_cache_options();

/// A file of packed weights.
struct PackedWeightsFile {
    std::string path;
    std::uint64_t bytes = 0;
};
/// Returns the packed weights in the user's cache folder. Does not search the folders of models.
std::vector<PackedWeightsFile> list_packed_weights();

}  // namespace draftscope
