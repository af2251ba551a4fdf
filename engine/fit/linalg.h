#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"

namespace draftscope::fit {

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
