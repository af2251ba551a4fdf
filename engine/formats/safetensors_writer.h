#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// A tensor to write; `data` is borrowed and holds little-endian values of `type`.
struct TensorToSave {
    std::string name;
    std::string_view type;            ///< "F32", "BF16", "F16", "I32", "I64"
    std::vector<std::int64_t> shape;  ///< row-major, slowest first
    std::span<const std::byte> data;
};

/// Writes a temporary file next to `path` and renames it, so that readers see a complete file. A shape that
/// does not match its data, a repeated name and a failed write are errors and leave no file behind.
Status save_safetensors(const std::string& path, std::span<const TensorToSave> tensors,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace draftscope
