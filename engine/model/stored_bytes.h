#pragma once

#include <cstdint>
#include <span>

#include "engine/model/weight_source.h"

namespace draftscope {

/// The bytes of a tensor as they lie in a safetensors file or PyTorch checkpoint, row-major and
/// little-endian, without a copy; valid as long as `source`. Empty for sources of another kind.
std::span<const std::uint8_t> stored_bytes(const WeightSource& source, const TensorInfo& tensor);

}  // namespace draftscope
