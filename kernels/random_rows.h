#pragma once

#include <optional>
#include <span>

#include "kernels/matrix.h"
#include "kernels/ops/random_values.h"

namespace draftscope::kernels {

/// Rows with generated values, numbered from 0.
struct RandomRows {
    int rows = 0;
    RandomValues values;
};

/// Makes a device matrix of `parts`, stacked vertically, without values from the host. Its bits are those of
/// Matrix::pack(). Returns nullopt if the matrix is not for a device, or for one that cannot generate values.
std::optional<Matrix> pack_random(Exec& exec, int k, std::span<const RandomRows> parts);

}  // namespace draftscope::kernels
