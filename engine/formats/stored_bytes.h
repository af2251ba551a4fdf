#pragma once

#include <cstdint>
#include <span>

#include "engine/formats/weight_source.h"

namespace draftscope {

/// Returns the stored bytes of a tensor (row-major, little-endian) without a copy. Valid as long as `source`.
/// Empty unless the source is a safetensors file or PyTorch checkpoint.
std::span<const std::uint8_t> stored_bytes(const WeightSource& source, const TensorInfo& tensor);

}  // namespace draftscope
