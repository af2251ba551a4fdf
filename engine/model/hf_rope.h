#pragma once

#include <vector>

#include "base/result.h"
#include "engine/model/json_file.h"

namespace draftscope {

/// How a config.json rotates heads of `head_dim`: base 10000 where it does not say, and the divisors of the
/// base frequencies that its scaling comes down to (types llama3 and linear; empty = none). Older files have
/// rope_theta and rope_scaling, newer ones rope_parameters with both inside.
struct HfRope {
    float theta = 10000.0f;
    std::vector<float> divisors;
};
Result<HfRope> read_hf_rope(const JsonFile& file, int head_dim);

}  // namespace draftscope
