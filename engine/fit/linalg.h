#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/fit/dense.h"
#include "kernels/matrix.h"

namespace draftscope::fit {

/// The rows as a matrix of kernels::matmul(), in f32: y = x rows^T.
kernels::Matrix pack_rows(kernels::Backend& backend, Rows<const float> rows);
/// Sets `out` to x rows^T + bias; null = no bias.
void multiply(kernels::Backend& backend, const kernels::Matrix& rows, Rows<const float> x, Dense& out,
              const float* bias = nullptr);
/// The columns of the k best values of each row, best first.
struct BestColumns {
    std::vector<std::int32_t> ids;  ///< [rows, k]
    Dense values;                   ///< [rows, k]
    void find(kernels::Backend& backend, Rows<const float> rows, int k);
};
/// The rows scaled to unit length; a row of zeros stays zero.
Dense normalise_rows(Rows<const float> rows);

/// Eigenvalues of a symmetric matrix, in descending order. Row i of `vectors` [n, n] is the unit eigenvector
/// of values[i], with a positive largest component, so that results do not depend on the solver's choice of
/// sign.
struct SymmetricEigen {
    std::vector<double> values;
    std::vector<double> vectors;
    int n() const { return static_cast<int>(values.size()); }
};
/// `matrix` is [n, n]; only its lower triangle is read.
SymmetricEigen symmetric_eigen(std::span<const double> matrix, int n);

/// A B, all [n, n].
std::vector<double> square_product(std::span<const double> a, std::span<const double> b, int n);

/// sum_i f(value_i) v_i v_i^T, such as the square root of a matrix or its inverse.
std::vector<double> spectral_map(const SymmetricEigen& eigen, FunctionRef<double(double)> f);

}  // namespace draftscope::fit
