#pragma once

#include <vector>

#include "base/result.h"
#include "engine/formats/json_file.h"

namespace draftscope {

/// The rotary embedding that a config.json describes: base (default 10000) and the divisors of the base
/// frequencies (empty = none). Supports scaling types llama3 and linear. Older files have rope_theta and
/// rope_scaling, newer ones rope_parameters with both inside.
struct HfRope {
    float theta = 10000.0f;
    std::vector<float> divisors;
};
Result<HfRope> read_hf_rope(const JsonFile& file, int head_dim);

}  // namespace draftscope
