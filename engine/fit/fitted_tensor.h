#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/fit/dense.h"
#include "engine/formats/safetensors_writer.h"
#include "kernels/matrix.h"

namespace draftscope::fit {

/// A tensor of a file to write, with its bytes.
struct FittedTensor {
    std::string name;
    std::string type;  ///< "F16", "I32"
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;

    TensorToSave view() const { return {name, type, shape, bytes}; }
};
FittedTensor f16_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);
FittedTensor f16_tensor(std::string name, const Dense& values);
/// The first rows of a packed matrix, as matmul reads them.
FittedTensor f16_tensor(std::string name, const kernels::Matrix& matrix, int rows);
/// Takes the narrowest of U8, U16 and I32 that holds every value.
FittedTensor integer_tensor(std::string name, std::vector<std::int64_t> shape,
                            std::span<const std::int32_t> values);
/// Stores `name` in I8 and `name`.scales in F16 [rows, ceil(cols / 64)]. This is half the size of F16 and not
/// coarser than an int8 head.
std::vector<FittedTensor> int8_tensors(const std::string& name, const Dense& values);

/// Rounds to the precision of the artefact, so that the report describes the stored head.
void round_to_f16(std::span<float> values);
void round_to_stored(Dense& values, bool int8);

std::vector<TensorToSave> views(std::span<const FittedTensor> tensors);

}  // namespace draftscope::fit
