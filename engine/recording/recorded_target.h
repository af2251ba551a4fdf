#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/recording/recording.h"
#include "engine/transformer/target.h"

namespace draftscope {

/// Loads a recorded target's embedding and LM head, which are all that drafters and heads read of it. They
/// come from the recording's weights.safetensors, else from `model`: a GGUF file, or a folder with
/// safetensors of any architecture ("" = not given), packed at `precision`. The config is that of the
/// recording.
Result<std::unique_ptr<Target>> make_recorded_target(const DecodeRecording& recording,
                                                     const std::string& model, kernels::Backend& backend,
                                                     kernels::Precision precision);

}  // namespace draftscope
