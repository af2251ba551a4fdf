#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Shapes and constants of a llama-family decoder.
struct ModelConfig {
    std::string architecture;  ///< "llama", ...
    std::string name;          ///< for people, e.g. "SmolLM2-135M-Instruct"
    int layers = 0;            ///< L
    int hidden = 0;            ///< d
    int heads = 0;             ///< H
    int kv_heads = 0;          ///< H_kv
    int head_dim = 0;          ///< hd
    int ffn = 0;               ///< d_ff
    int vocab = 0;             ///< V, rows of the LM head
    int context = 0;           ///< positions the model was made for
    float rope_theta = 10000.0f;
    std::vector<float> rope_divisors;  ///< head_dim / 2 divisors of the base frequencies; empty = none
    float norm_eps = 1e-5f;
    bool tied_head = false;  ///< LM head = token embedding
};

}  // namespace draftscope
