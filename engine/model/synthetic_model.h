#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model/model_file.h"

namespace draftscope {

/// "synthetic:NAME" is a target with the dimensions of a published model and random weights: what it computes
/// means nothing, what it costs is real. Everything made with one has to say so.
bool is_synthetic_model(std::string_view spec);

/// Weights are made row by row while they are packed, so only the packed form takes memory. The tokenizer
/// knows single bytes; its other ids read "[1234]". An unknown name is an error that lists the known ones.
Result<ModelFile> make_synthetic_model(const std::string& spec);

}  // namespace draftscope
