#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "engine/fit/affinity.h"
#include "engine/fit/kmeans.h"
#include "engine/fit/linalg.h"
#include "engine/fit/low_rank.h"
#include "engine/fit/ranking.h"
#include "engine/fit/samples.h"
#include "kernels/host_rows.h"
#include "tests/support/results.h"

namespace draftscope::fit {
namespace {

using kernels::make_cpu_backend;

Dense random_dense(int rows, int cols, std::uint64_t seed, double scale = 1.0) {
    Dense matrix(rows, cols);
    Rng rng(seed);
    for (float& v : matrix.data) v = static_cast<float>(rng.normal() * scale);
    return matrix;
}

/// Hidden states with directions of large and small variance, like those of drafters.
Dense uneven_hiddens(int rows, int width, std::uint64_t seed) {
    Dense h = random_dense(rows, width, seed);
    for (int r = 0; r < rows; ++r)
        for (int j = 0; j < width; ++j) h.row(r)[j] *= j == 3 ? 20.0f : 1.0f / (1 + j);
    return h;
}

Dense product(const Dense& a, const Dense& b_transposed) {
    const auto exec = make_cpu_backend(1);
    Dense c(a.rows, b_transposed.rows);
    kernels::matmul(exec->pool(), pack_rows(*exec, b_transposed.view()), a.view(), c.view());
    return c;
}

/// Mean over rows of |W h - up down h|^2.
double error_of(const Dense& weights, const HeadFactors& factors, const Dense& hiddens) {
    const Dense exact = product(hiddens, weights);
    const Dense low = product(product(hiddens, factors.down[0]), factors.up);
    double sum = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const double difference = static_cast<double>(exact.data[i]) - static_cast<double>(low.data[i]);
        sum += difference * difference;
    }
    return sum / hiddens.rows;
}

TEST(SymmetricEigen, RebuildsTheMatrixFromSortedPairs) {
    constexpr int n = 9;
    Rng rng(5);
    std::vector<double> matrix(n * n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j <= i; ++j) matrix[i * n + j] = matrix[j * n + i] = rng.normal();
    const SymmetricEigen eigen = symmetric_eigen(matrix, n);
    EXPECT_TRUE(std::is_sorted(eigen.values.rbegin(), eigen.values.rend()));
    const auto rebuilt = spectral_map(eigen, [](double v) { return v; });
    for (std::size_t i = 0; i < matrix.size(); ++i) EXPECT_NEAR(rebuilt[i], matrix[i], 1e-12);
    const auto squared = spectral_map(eigen, [](double v) { return v * v; });
    const auto twice = square_product(matrix, matrix, n);
    for (std::size_t i = 0; i < matrix.size(); ++i) EXPECT_NEAR(squared[i], twice[i], 1e-11);
}

class LowRankFactors : public ::testing::Test {
  protected:
    std::unique_ptr<kernels::Backend> exec_ = make_cpu_backend(2);
    Dense weights_ = random_dense(300, 12, 1);
    Dense hiddens_ = uneven_hiddens(400, 12, 2);

    HeadFactors fit(int rank, bool weighted) {
        SecondMoment moment(12);
        moment.add(*exec_, hiddens_.view());
        auto factors =
            low_rank_factors(*exec_, weights_.view(), weighted ? moment.mean() : identity_moment(12), {rank});
        EXPECT_TRUE(factors.ok());
        return std::move(factors).value();
    }
};

// The smallest possible error is the sum of the omitted eigenvalues of C^1/2 W^T W C^1/2 (Eckart and Young).
TEST_F(LowRankFactors, ReachTheSmallestPossibleError) {
    SecondMoment moment(12);
    moment.add(*exec_, hiddens_.view());
    const auto root = spectral_map(symmetric_eigen(moment.mean(), 12), [](double v) { return std::sqrt(v); });
    std::vector<double> gram(12 * 12);
    for (int i = 0; i < 12; ++i)
        for (int j = 0; j < 12; ++j)
            for (int r = 0; r < weights_.rows; ++r)
                gram[i * 12 + j] +=
                    static_cast<double>(weights_.row(r)[i]) * static_cast<double>(weights_.row(r)[j]);
    const SymmetricEigen best = symmetric_eigen(square_product(square_product(root, gram, 12), root, 12), 12);
    for (const int rank : {1, 3, 6, 11}) {
        const double least = std::accumulate(best.values.begin() + rank, best.values.end(), 0.0);
        EXPECT_NEAR(error_of(weights_, fit(rank, true), hiddens_), least, 1e-4 * best.values[0]) << rank;
        EXPECT_GE(error_of(weights_, fit(rank, false), hiddens_), least) << rank;
    }
    EXPECT_NEAR(error_of(weights_, fit(12, true), hiddens_), 0.0, 1e-4);
}

TEST_F(LowRankFactors, IgnoreDirectionsWithoutVariance) {
    for (int r = 0; r < hiddens_.rows; ++r) hiddens_.row(r)[5] = 0.0f;
    EXPECT_NEAR(error_of(weights_, fit(11, true), hiddens_), 0.0, 1e-4);
}

TEST_F(LowRankFactors, ShareLeadingRowsBetweenLevels) {
    const auto factors = require(low_rank_factors(*exec_, weights_.view(), identity_moment(12), {6, 2}));
    EXPECT_EQ(factors.up.cols, 6);
    ASSERT_EQ(factors.down.size(), 2u);
    EXPECT_EQ(factors.down[1].rows, 2);
    for (int r = 0; r < 2; ++r)
        EXPECT_TRUE(std::ranges::equal(factors.down[0].row(r), factors.down[1].row(r)));
}

TEST_F(LowRankFactors, RefuseARankThatDoesNotFit) {
    const auto refused = low_rank_factors(*exec_, weights_.view(), identity_moment(12), {13});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
    EXPECT_NE(refused.error().message.find("1..12"), std::string::npos);
}

/// Rows near `clusters` directions.
Dense bunched_rows(int rows, int width, int clusters, std::uint64_t seed) {
    const Dense centres = random_dense(clusters, width, seed, 3.0);
    Dense result = random_dense(rows, width, seed + 1);
    for (int r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j)
            result.row(r)[j] += centres.row(r % clusters)[j];
    return result;
}

TEST(SphericalKmeans, NeverGetsWorseAndConverges) {
    const auto exec = make_cpu_backend(2);
    const Dense rows = bunched_rows(900, 10, 6, 31);
    for (const std::uint64_t seed : {0u, 1u, 2u}) {
        const auto clusters = require(spherical_kmeans(*exec, rows.view(), {8, 50, seed}, {}));
        const std::vector<double>& objective = clusters.objective;
        ASSERT_GE(objective.size(), 2u);
        for (std::size_t i = 1; i < objective.size(); ++i) EXPECT_LE(objective[i], objective[i - 1] + 1e-7);
        const Dense cosines = product(rows, clusters.centres);
        for (int r = 0; r < rows.rows; ++r) {
            const auto row = cosines.row(r);
            const auto mine = static_cast<std::size_t>(clusters.cluster_of[r]);
            EXPECT_GE(row[mine], *std::max_element(row.begin(), row.end()) - 1e-3f);
        }
        EXPECT_EQ(clusters.cluster_of,
                  spherical_kmeans(*make_cpu_backend(1), rows.view(), {8, 50, seed}, {})->cluster_of);
    }
    EXPECT_FALSE(spherical_kmeans(*exec, rows.view(), {901, 5, 0}, {}).ok());
}

TEST(BalancedGroups, AreEqualAndGiveFrequentTokensTheirNearestGroup) {
    const auto exec = make_cpu_backend(1);
    const Dense rows = bunched_rows(103, 10, 4, 41);
    const auto clusters = require(spherical_kmeans(*exec, rows.view(), {5, 50, 0}, {}));
    std::vector<std::int32_t> order(103);
    std::iota(order.rbegin(), order.rend(), 0);
    const auto groups = balanced_groups(*exec, rows.view(), clusters, order);
    std::vector<int> sizes(5);
    for (const std::int32_t group : groups) ++sizes[group];
    for (const int size : sizes) EXPECT_LE(size, 21);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), 0), 103);
    EXPECT_EQ(groups[102], clusters.cluster_of[102]);  // first in `order`
}

TEST(AffinityMatrix, RowsShareProbabilityAmongTheNearestTokens) {
    const auto exec = make_cpu_backend(2);
    const Dense rows = bunched_rows(300, 10, 5, 61);
    const auto affinity = require(token_affinity(*exec, rows.view(), {4, 0.8, 0.1}, {}));
    for (std::size_t r = 0; r < 300; ++r) {
        const auto* weights = affinity.weights.data() + r * 4;
        const auto* neighbours = affinity.neighbours.data() + r * 4;
        EXPECT_NEAR(std::accumulate(weights, weights + 4, 0.0), 1.0, 1e-6);
        EXPECT_EQ(neighbours[0], static_cast<std::int32_t>(r));
        EXPECT_FLOAT_EQ(weights[0], 0.8f);
        EXPECT_TRUE(std::is_sorted(weights + 1, weights + 4, std::greater<>{}));
        EXPECT_EQ(std::set<std::int32_t>(neighbours, neighbours + 4).size(), 4u);
    }
    EXPECT_FALSE(token_affinity(*exec, rows.view(), {1, 0.8, 0.1}, {}).ok());
}

TEST(Ranking, CountsTokensInDescendingOrder) {
    TokenCounter counter(6);
    counter.add(std::vector<TokenId>{4, 4, 1, 2, 1, 4, 9, -1});
    const Ranking ranking = counter.ranking();
    EXPECT_EQ(ranking.ids, (std::vector<std::int32_t>{4, 1, 2, 0, 3, 5}));
    EXPECT_EQ(ranking.counts, (std::vector<std::int32_t>{3, 2, 1, 0, 0, 0}));
    EXPECT_EQ(ranking.tokens, 6);
    EXPECT_DOUBLE_EQ(ranking_coverage(ranking, 2, ranking), 5.0 / 6.0);
    EXPECT_DOUBLE_EQ(ranking_coverage(ranking, 100, ranking), 1.0);
}

TEST(Ranking, CoverageOfOtherTextCountsThatTextsTokens) {
    TokenCounter seen(6), other(6);
    seen.add(std::vector<TokenId>{4, 4, 4, 1, 1, 2});
    other.add(std::vector<TokenId>{4, 1, 3, 3, 3, 2, 2, 5});
    EXPECT_DOUBLE_EQ(ranking_coverage(seen.ranking(), 2, other.ranking()), 2.0 / 8.0);
    EXPECT_DOUBLE_EQ(ranking_coverage(seen.ranking(), 3, other.ranking()), 4.0 / 8.0);
    EXPECT_DOUBLE_EQ(ranking_coverage(seen.ranking(), 0, other.ranking()), 0.0);
    EXPECT_DOUBLE_EQ(ranking_coverage(seen.ranking(), 2, TokenCounter(6).ranking()), 0.0);
}

TEST(TextSplit, HoldsOutSomeTextsOfAnyNumberAndNoneTwice) {
    for (int count = 2; count < 1500; count += count < 40 ? 1 : 137) {
        // Texts with fewer than two generated tokens are between the others.
        std::vector<int> generated;
        for (int t = 0; t < count; ++t) generated.insert(generated.end(), {t % 3 == 0 ? 1 : 0, 2 + t});
        const TextSplit split(generated, {10, 60});
        const std::vector<int> held = split.texts(true), learnt = split.texts(false);
        ASSERT_EQ(static_cast<int>(split.usable().size()), count);
        EXPECT_GE(held.size(), 1u) << count;
        EXPECT_LE(held.size(), 60u) << count;
        EXPECT_GE(learnt.size(), held.size()) << count;
        std::vector<int> both = held;
        both.insert(both.end(), learnt.begin(), learnt.end());
        std::sort(both.begin(), both.end());
        EXPECT_EQ(both, split.usable()) << count;
        for (const int t : both) EXPECT_EQ(t % 2, 1);
    }
    EXPECT_TRUE(TextSplit(std::vector<int>{0, 5, 1}, {}).texts(true).empty());
}

}  // namespace
}  // namespace draftscope::fit
