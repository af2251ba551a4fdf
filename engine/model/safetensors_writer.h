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

/// One tensor of a safetensors file; `data` is borrowed and already in the type's little-endian bytes.
struct TensorToSave {
    std::string name;
    std::string_view type;            ///< "F32", "BF16", "F16", "I32", "I64"
    std::vector<std::int64_t> shape;  ///< row-major, slowest first
    std::span<const std::byte> data;
};

/// Writes beside `path` and renames, so that a reader sees the old file or the whole new one. A shape that
/// its data does not fill, a name that appears twice and a disk that does not take it are errors; nothing is
/// left behind then.
Status save_safetensors(const std::string& path, std::span<const TensorToSave> tensors,
                        const std::map<std::string, std::string>& metadata = {});

/// Round to nearest even, as every bf16 of this program.
std::vector<std::uint16_t> to_bf16(std::span<const float> values);

}  // namespace draftscope
