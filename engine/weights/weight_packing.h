#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/formats/weight_source.h"
#include "kernels/matrix.h"

namespace draftscope {

/// A tensor stacked into a fused matrix, with its number of rows (outputs).
struct StackedTensor {
    std::string name;
    int rows = 0;
};

/// Returns the tensor `name`, which must have exactly `shape`. An error names file, tensor and both shapes;
/// `reason` names the source of the expected shape.
Result<const TensorInfo*> require_tensor(const WeightSource& source, const std::string& name,
                                         std::initializer_list<std::int64_t> shape,
                                         std::string_view reason = {});

/// Packs the rows of `parts`, each [rows, cols], stacked vertically.
Result<kernels::Matrix> pack_stacked(kernels::Backend& backend, kernels::Precision precision,
                                     const WeightSource& source, std::span<const StackedTensor> parts,
                                     int cols, std::string_view reason = {});

/// Reads a 1-D tensor of `size` values.
Result<std::vector<float>> read_vector(const WeightSource& source, const std::string& name, int size,
                                       std::string_view reason = {});

}  // namespace draftscope
