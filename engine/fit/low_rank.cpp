#include "engine/fit/low_rank.h"

#include <algorithm>
#include <cmath>

#include "base/numel.h"
#include "engine/fit/linalg.h"

namespace draftscope::fit {

void SecondMoment::add(kernels::Backend& backend, Rows<const float> rows) {
    Dense columns(width_, rows.rows);
    for (int r = 0; r < rows.rows; ++r)
        for (int j = 0; j < width_; ++j) columns.row(j)[r] = rows.row(r)[j];
    multiply(backend, pack_rows(backend, columns.view()), columns.view(), product_);
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<double>(product_.data[i]);
    count_ += rows.rows;
}

std::vector<double> SecondMoment::mean() const {
    std::vector<double> mean = sum_;
    const double scale = count_ > 0 ? 1.0 / static_cast<double>(count_) : 0.0;
    for (double& value : mean) value *= scale;
    return mean;
}

std::vector<double> identity_moment(int width) {
    const std::size_t n = width;
    std::vector<double> identity(n * n);
    for (std::size_t i = 0; i < n; ++i) identity[i * n + i] = 1.0;
    return identity;
}

namespace {

/// W^T W, summed in double block by block, because f32 sums are too inexact for 100,000 rows.
std::vector<double> gram(kernels::Backend& backend, Rows<const float> weights) {
    SecondMoment sum(weights.cols);
    constexpr int block = 4096;
    for (int row = 0; row < weights.rows; row += block)
        sum.add(backend, weights.slice(row, std::min(block, weights.rows - row)));
    std::vector<double> total = sum.mean();
    for (double& value : total) value *= static_cast<double>(sum.count());
    return total;
}

/// The rows minus their mean, weighted by importance.
Dense subtract_mean(Rows<const float> rows, std::span<const double> importance) {
    const std::size_t width = rows.cols;
    std::vector<double> mean(width);
    double total = 0;
    for (int v = 0; v < rows.rows; ++v) {
        const double weight = importance[v];
        total += weight;
        for (std::size_t j = 0; j < width; ++j) mean[j] += weight * static_cast<double>(rows.row(v)[j]);
    }
    Dense result(rows.rows, rows.cols);
    for (int v = 0; v < rows.rows; ++v)
        for (std::size_t j = 0; j < width; ++j)
            result.row(v)[j] = static_cast<float>(static_cast<double>(rows.row(v)[j]) - mean[j] / total);
    return result;
}

}  // namespace

Result<HeadFactors> low_rank_factors(kernels::Backend& backend, Rows<const float> rows,
                                     std::span<const double> moment, const std::vector<int>& ranks,
                                     std::span<const double> importance) {
    const int d = rows.cols;
    int rank = 0;
    for (const int r : ranks) {
        if (r < 1 || r > d) return bad_input("rank={} does not fit a head of {} inputs; use 1..{}", r, d, d);
        rank = std::max(rank, r);
    }
    if (rank == 0) return bad_input("rank: no rank given");
    Dense centred, scaled;
    if (!importance.empty()) {
        centred = subtract_mean(rows, importance);
        scaled = centred;
        for (int v = 0; v < scaled.rows; ++v) {
            const auto root_importance = static_cast<float>(std::sqrt(importance[v]));
            for (float& value : scaled.row(v)) value *= root_importance;
        }
    }
    const Rows<const float> weights = importance.empty() ? rows : Rows<const float>(centred.view());
    const Rows<const float> weighted_rows = importance.empty() ? rows : Rows<const float>(scaled.view());
    const SymmetricEigen c = symmetric_eigen(moment, d);
    // Eigenvalues below this share of the largest are rounding errors, which the inverse would amplify.
    const double smallest = 1e-10 * std::max(c.values.front(), 0.0);
    const auto root = spectral_map(c, [&](double v) { return v > smallest ? std::sqrt(v) : 0.0; });
    const auto inverse = spectral_map(c, [&](double v) { return v > smallest ? 1.0 / std::sqrt(v) : 0.0; });
    const std::vector<double> weighted =
        square_product(square_product(root, gram(backend, weighted_rows), d), root, d);
    const SymmetricEigen m = symmetric_eigen(weighted, d);

    HeadFactors result;
    Dense full(rank, d);  // V_r^T C^-1/2
    Dense lift(rank, d);  // V_r^T C^1/2
    const std::size_t n = d;
    for (int i = 0; i < rank; ++i) {
        const double* vector = m.vectors.data() + numel(i, n);
        for (std::size_t j = 0; j < n; ++j) {
            double down = 0, up = 0;
            for (std::size_t l = 0; l < n; ++l) {
                down += vector[l] * inverse[l * n + j];
                up += vector[l] * root[l * n + j];
            }
            full.row(i)[j] = static_cast<float>(down);
            lift.row(i)[j] = static_cast<float>(up);
        }
    }
    multiply(backend, pack_rows(backend, lift.view()), weights, result.up);
    for (const int r : ranks) {
        Dense& down = result.down.emplace_back(r, d);
        std::copy_n(full.data.begin(), down.size(), down.data.begin());
    }
    return result;
}

}  // namespace draftscope::fit
