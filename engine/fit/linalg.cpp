#include "engine/fit/linalg.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "kernels/host_rows.h"

namespace draftscope::fit {
namespace {

using Square = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<const Square>;

std::vector<double> to_vector(const Square& matrix) {
    return {matrix.data(), matrix.data() + matrix.size()};
}

}  // namespace

kernels::Matrix pack_rows(kernels::Backend& backend, Rows<const float> rows) {
    return kernels::Matrix::pack(
        backend, kernels::Precision::f32, rows.rows, rows.cols,
        [&](int row, float* out) { std::copy_n(rows.row_data(row), rows.cols, out); });
}

void multiply(kernels::Backend& backend, const kernels::Matrix& rows, Rows<const float> x, Dense& out,
              const float* bias) {
    out.resize(x.rows, rows.n());
    kernels::matmul(backend.pool(), rows, x, out.view(), bias);
}

void BestColumns::find(kernels::Backend& backend, Rows<const float> rows, int k) {
    values.resize(rows.rows, k);
    ids.resize(values.size());
    kernels::topk(backend.pool(), rows, k, {ids.data(), rows.rows, k}, values.view());
}

Dense normalise_rows(Rows<const float> rows) {
    Dense unit(rows.rows, rows.cols);
    for (int r = 0; r < rows.rows; ++r) {
        double squares = 0;
        for (const float v : rows.row(r)) squares += static_cast<double>(v) * static_cast<double>(v);
        const double scale = squares > 0 ? 1.0 / std::sqrt(squares) : 0.0;
        std::ranges::transform(rows.row(r), unit.row(r).begin(),
                               [&](float v) { return static_cast<float>(static_cast<double>(v) * scale); });
    }
    return unit;
}

SymmetricEigen symmetric_eigen(std::span<const double> matrix, int n) {
    const Eigen::SelfAdjointEigenSolver<Square> solver(Map(matrix.data(), n, n));
    SymmetricEigen result;
    result.values.resize(n);
    Square vectors(n, n);
    for (int i = 0; i < n; ++i) {
        const int from = n - 1 - i;  // the solver sorts ascending
        result.values[i] = solver.eigenvalues()[from];
        Eigen::Index largest = 0;
        solver.eigenvectors().col(from).cwiseAbs().maxCoeff(&largest);
        const double sign = solver.eigenvectors()(largest, from) < 0 ? -1.0 : 1.0;
        vectors.row(i) = sign * solver.eigenvectors().col(from).transpose();
    }
    result.vectors = to_vector(vectors);
    return result;
}

std::vector<double> square_product(std::span<const double> a, std::span<const double> b, int n) {
    return to_vector(Map(a.data(), n, n) * Map(b.data(), n, n));
}

std::vector<double> spectral_map(const SymmetricEigen& eigen, FunctionRef<double(double)> f) {
    const int n = eigen.n();
    const Map vectors(eigen.vectors.data(), n, n);
    Eigen::VectorXd values(n);
    for (int i = 0; i < n; ++i) values[i] = f(eigen.values[i]);
    return to_vector(vectors.transpose() * values.asDiagonal() * vectors);
}

}  // namespace draftscope::fit
