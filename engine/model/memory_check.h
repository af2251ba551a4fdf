#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/model/model_file.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Bytes that the packed weights of `file` take, to within a few per cent.
std::uint64_t packed_bytes(const ModelFile& file, kernels::Precision precision);

/// Memory that programs can still get without swapping; nothing where the system does not say.
std::optional<std::uint64_t> available_memory();

/// Refuses a target whose packed weights do not fit into `available`: packing it would take the machine down.
Status check_memory(const ModelFile& file, kernels::Precision precision,
                    std::optional<std::uint64_t> available);

}  // namespace draftscope
