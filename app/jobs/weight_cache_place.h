#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/weight_cache.h"

namespace draftscope {

/// What the environment says of keeping packed weights: DRAFTSCOPE_WEIGHT_CACHE is auto (where it shortens a
/// load; also when unset), on, or off. Where a model's folder may not be written they go to the user's cache
/// folder.
Result<WeightCacheOptions> weight_cache_options();

struct KeptWeights {
    std::string path;
    std::uint64_t bytes = 0;
};
/// What lies in the user's cache folder; files beside models are not looked for.
std::vector<KeptWeights> kept_weights();

}  // namespace draftscope
