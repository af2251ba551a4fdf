#pragma once

#include <vector>

#include "base/json_file.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/formats/gguf.h"
#include "engine/formats/model_config.h"

namespace draftscope {

/// YaRN's parameters (arXiv 2309.00071), as transformers and llama.cpp name them.
struct YarnScaling {
    double factor = 1, original_context = 0, beta_fast = 32, beta_slow = 1;
    bool truncate = true;  ///< round the corrected range outwards
};
/// Returns YaRN's divisors of the base frequencies: 1 for frequencies that turn at least beta_fast times in
/// the original context, `factor` for those that turn at most beta_slow times, and a blend between.
std::vector<float> yarn_divisors(const YarnScaling& scaling, double theta, int head_dim);

/// Reads the rotary embedding of a config.json: rope_theta and rope_scaling, or rope_parameters, flat or by
/// layer type. Computes default, linear, llama3 and yarn, and types that equal default for text; refuses
/// others by name.
Result<RopeConfig> read_hf_rope(const JsonFile& file, int head_dim, Notes& notes);

/// Reads the keys `PREFIX.rope.*` of a GGUF file. The first of `tensors` that it holds has divisors of the
/// base frequencies, which the converter computed (Llama 3.1's scaling).
Result<RopeConfig> read_gguf_rope(const GgufFile& file, const std::string& prefix, int head_dim,
                                  std::int64_t context, std::span<const std::string_view> tensors);

}  // namespace draftscope
