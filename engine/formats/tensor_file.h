#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/formats/model_file.h"
#include "engine/formats/weight_source.h"

/// Files of named tensors other than targets: drafters, head artefacts, token rankings.
namespace draftscope {

/// Opens a PyTorch checkpoint (.bin, .pt): the tensors of a saved state dict, memory-mapped. Its pickle is
/// read as data; everything except tensors, numbers, text and their containers is refused, and no code of the
/// file is run. A saved list of numbers becomes the tensor `ids`.
Result<std::unique_ptr<WeightSource>> open_torch_file(const std::string& path);

/// Opens a safetensors file or a PyTorch checkpoint, chosen by its first bytes.
Result<std::unique_ptr<WeightSource>> open_tensor_file(const std::string& path);

}  // namespace draftscope
