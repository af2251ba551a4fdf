#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "engine/fit/affinity.h"
#include "engine/fit/kl_training.h"
#include "engine/fit/kmeans.h"
#include "engine/fit/linalg.h"
#include "engine/fit/ranking.h"
#include "engine/fit/router.h"
#include "engine/fit/text_split.h"
#include "kernels/gemm.h"
#include "tests/support/results.h"

namespace draftscope::fit {
namespace {

using kernels::make_cpu_exec;

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
    const auto exec = make_cpu_exec(1);
    Dense c(a.rows, b_transposed.rows);
    kernels::gemm(*exec, kernels::Operand::plain, a.view(), kernels::Operand::transposed, b_transposed.view(),
                  c.view());
    return c;
}

/// Mean over rows of |W h - up down h|^2.
double error_of(const Dense& weights, const LowRankWeights& factors, const Dense& hiddens) {
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
    std::unique_ptr<kernels::Exec> exec_ = make_cpu_exec(2);
    Dense weights_ = random_dense(300, 12, 1);
    Dense hiddens_ = uneven_hiddens(400, 12, 2);

    LowRankWeights fit(int rank, bool weighted) {
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

/// A student's loss sum_j c_j z_j with given weights c, in double from its own logits z.
double weighted_logits(kernels::Exec& exec, Student& student, const Dense& hidden,
                       const std::vector<std::uint8_t>& levels, const Dense& c) {
    Dense logits(hidden.rows, student.support());
    student.forward(exec, hidden.view(), levels, logits.view());
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
        sum += static_cast<double>(logits.data[i]) * static_cast<double>(c.data[i]);
    return sum;
}

void check_student_gradients(Student& student, int width, const std::vector<std::uint8_t>& levels) {
    const auto exec = make_cpu_exec(1);
    const Dense hidden = random_dense(static_cast<int>(levels.size()), width, 11);
    const Dense c = random_dense(hidden.rows, student.support(), 12);
    weighted_logits(*exec, student, hidden, levels, c);
    Dense d_hidden(hidden.rows, width);
    student.backward(*exec, hidden.view(), levels, c.view(), d_hidden.view());
    // The logits are multilinear, so a central difference of any step is exact up to rounding.
    constexpr float step = 0.25f;
    for (const Parameter& p : student.parameters()) {
        const std::vector<float> gradient(p.gradient.begin(), p.gradient.end());
        for (std::size_t i = 0; i < p.values.size(); i += 1 + p.values.size() / 17) {
            const float before = p.values[i];
            p.values[i] = before + step;
            const double up = weighted_logits(*exec, student, hidden, levels, c);
            p.values[i] = before - step;
            const double down = weighted_logits(*exec, student, hidden, levels, c);
            p.values[i] = before;
            EXPECT_NEAR(static_cast<double>(gradient[i]), (up - down) / (2 * step), 2e-3) << i;
        }
    }
    for (int r = 0; r < hidden.rows; ++r) {
        Dense moved = hidden;
        moved.row(r)[1] += step;
        const double up = weighted_logits(*exec, student, moved, levels, c);
        moved.row(r)[1] -= 2 * step;
        const double down = weighted_logits(*exec, student, moved, levels, c);
        EXPECT_NEAR(static_cast<double>(d_hidden.row(r)[1]), (up - down) / (2 * step), 2e-3);
    }
}

TEST(Students, GradientsAreThoseOfFiniteDifferences) {
    LowRankWeights factors{{random_dense(5, 9, 1), random_dense(3, 9, 2)}, random_dense(40, 5, 3)};
    check_student_gradients(*make_low_rank_student(factors), 9, {0, 0, 1, 2, 0, 1});
    Dense weights = random_dense(30, 9, 4);
    check_student_gradients(*make_dense_student(weights), 9, {0, 1, 2});
}

TEST(Routers, GradientsAreThoseOfFiniteDifferences) {
    const auto exec = make_cpu_exec(1);
    RouterWeights router{random_dense(6, 8, 1), std::vector<float>(6, 0.1f), random_dense(5, 6, 2),
                         std::vector<float>(5, -0.2f)};
    RouterPass pass(router);
    const Dense x = random_dense(7, 8, 3);
    Dense y(7, 5);
    Rng rng(4);
    for (float& label : y.data) label = rng.uniform() < 0.3 ? 1.0f : 0.0f;
    const auto loss = [&] {
        const Rows<const float> scores = pass.forward(*exec, x.view());
        double sum = 0;
        for (int r = 0; r < 7; ++r)
            for (std::size_t j = 0; j < 5; ++j) {
                const double s = static_cast<double>(scores.row(r)[j]);
                sum += std::log1p(std::exp(s)) - s * static_cast<double>(y.row(r)[j]);
            }
        return sum / 35;
    };
    loss();
    pass.backward(*exec, x.view(), y.view());
    for (const Parameter& p : pass.parameters()) {
        const std::vector<float> gradient(p.gradient.begin(), p.gradient.end());
        for (std::size_t i = 0; i < p.values.size(); ++i) {
            constexpr float step = 1e-2f;
            const float before = p.values[i];
            p.values[i] = before + step;
            const double up = loss();
            p.values[i] = before - step;
            const double down = loss();
            p.values[i] = before;
            EXPECT_NEAR(static_cast<double>(gradient[i]), (up - down) / (2.0 * static_cast<double>(step)),
                        2e-5);
        }
    }
}

// The reference is the update rule of the paper's algorithm 1, in double.
TEST(Adam, FollowsThePaperAndItsSchedule) {
    const auto exec = make_cpu_exec(2);
    AdamOptions options{.rate = 0.1, .clip = 1.0, .steps = 10, .warmup = 2};
    Adam adam(options);
    EXPECT_DOUBLE_EQ(adam.rate_at(0), 0.05);
    EXPECT_DOUBLE_EQ(adam.rate_at(2), 0.1);
    EXPECT_NEAR(adam.rate_at(6), 0.05, 1e-12);
    EXPECT_NEAR(adam.rate_at(10), 0.0, 1e-12);
    std::vector<float> x{1.0f, -2.0f}, g(2);
    std::vector<double> exact{1.0, -2.0}, m(2), v(2);
    for (int step = 0; step < 10; ++step) {
        g = {static_cast<float>(std::sin(step + 1.0)), 2.0f * x[1]};
        const double norm = std::hypot(static_cast<double>(g[0]), static_cast<double>(g[1]));
        const Parameter parameter{x, g};
        EXPECT_NEAR(adam.step(*exec, {&parameter, 1}), norm, 1e-6);
        for (std::size_t i = 0; i < 2; ++i) {
            const double gradient = static_cast<double>(g[i]) * std::min(1.0, 1.0 / norm);
            m[i] = 0.9 * m[i] + 0.1 * gradient;
            v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
            const double mean = m[i] / (1 - std::pow(0.9, step + 1)),
                         square = v[i] / (1 - std::pow(0.95, step + 1));
            exact[i] -= adam.rate_at(step) * mean / (std::sqrt(square) + 1e-8);
            EXPECT_NEAR(static_cast<double>(x[i]), exact[i], 1e-5) << step;
        }
    }
}

/// Samples of a drafter whose rows determine which of 40 tokens is next, with their matrices.
struct Problem {
    Problem() : samples(12, 10), target(kernels::Matrix()), drafter(kernels::Matrix()) {
        const auto exec = make_cpu_exec(1);
        const Dense head = random_dense(40, 12, 21);
        const auto row = [&](int r, float* out) { std::copy_n(head.row(r).begin(), 12, out); };
        target = kernels::Matrix::pack(*exec, kernels::Precision::f32, 40, 12, row);
        drafter = kernels::Matrix::pack(*exec, kernels::Precision::f32, 40, 12, row);
        const Dense hidden = uneven_hiddens(600, 12, 22);
        const Dense noise = random_dense(600, 12, 23, 0.1);
        for (int r = 0; r < 600; ++r) {
            SampleRows& rows = r % 2 == 0 ? samples.text : samples.drafted;
            rows.hidden.append(hidden.row(r));
            rows.level.push_back(static_cast<std::uint8_t>(r / 2 % 3));
            rows.held_out.push_back(r % 10 < 2 ? 1 : 0);
            if (r % 2 != 0) continue;
            std::vector<float> wanted(hidden.row(r).begin(), hidden.row(r).end());
            for (std::size_t j = 0; j < wanted.size(); ++j) wanted[j] += noise.row(r)[j];
            rows.teacher.append(wanted);
        }
        teacher = {&target, &drafter, 40};
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    LowRankWeights start(const std::vector<int>& ranks) const {
        const auto exec = make_cpu_exec(1);
        Dense head(40, 12);
        for (int r = 0; r < 40; ++r) drafter.unpack_row(r, head.row(r));
        return low_rank_factors(*exec, head.view(), identity_moment(12), ranks).value();
    }

    Samples samples;
    kernels::Matrix target, drafter;
    Teacher teacher;
};

KlOptions quick() {
    KlOptions options{.epochs = 3, .batch = 64, .rate = 1e-2, .warmup = 2};
    return options;
}

TEST(KlTraining, LowersTheHeldOutDivergence) {
    const Problem problem;
    const auto exec = make_cpu_exec(2);
    for (const std::vector<int>& ranks : {std::vector<int>{4}, std::vector<int>{5, 4, 3}}) {
        LowRankWeights factors = problem.start(ranks);
        const auto student = make_low_rank_student(factors);
        const auto report = require(train_kl(*exec, problem.samples, problem.teacher, *student, quick(), {}));
        EXPECT_LT(report.kl_after, 0.9 * report.kl_before);
        EXPECT_GT(report.best_epoch, 0);
        EXPECT_EQ(report.steps, 3 * ((480 + 63) / 64));
    }
}

TEST(KlTraining, GivesTheSameBitsForASeedAtEveryThreadCount) {
    const Problem problem;
    const auto trained = [&](int threads, std::uint64_t seed) {
        const auto exec = make_cpu_exec(threads);
        LowRankWeights factors = problem.start({4});
        const auto student = make_low_rank_student(factors);
        KlOptions options = quick();
        options.seed = seed;
        EXPECT_TRUE(train_kl(*exec, problem.samples, problem.teacher, *student, options, {}).ok());
        return factors.up.data;
    };
    const std::vector<float> one = trained(1, 7);
    EXPECT_EQ(one, trained(3, 7));
    EXPECT_NE(one, trained(1, 8));
}

TEST(KlTraining, KeepsTheStartWhenTrainingMakesItWorse) {
    const Problem problem;
    const auto exec = make_cpu_exec(1);
    LowRankWeights factors = problem.start({4});
    const std::vector<float> before = factors.up.data;
    const auto student = make_low_rank_student(factors);
    KlOptions options = quick();
    options.rate = 50.0;
    const auto report = require(train_kl(*exec, problem.samples, problem.teacher, *student, options, {}));
    EXPECT_EQ(report.best_epoch, 0);
    EXPECT_EQ(report.kl_after, report.kl_before);
    EXPECT_EQ(factors.up.data, before);
}

TEST(KlTraining, StopsWhenCancelled) {
    const Problem problem;
    const auto exec = make_cpu_exec(1);
    LowRankWeights factors = problem.start({4});
    const auto student = make_low_rank_student(factors);
    int calls = 0;
    Hooks hooks;
    hooks.cancelled = [&] { return ++calls > 4; };
    const auto report = train_kl(*exec, problem.samples, problem.teacher, *student, quick(), hooks);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().kind, ErrorKind::cancelled);
}

TEST(KlTraining, RefusesSamplesWithoutHeldOutRows) {
    Problem problem;
    std::fill(problem.samples.text.held_out.begin(), problem.samples.text.held_out.end(), 0);
    std::fill(problem.samples.drafted.held_out.begin(), problem.samples.drafted.held_out.end(), 0);
    const auto exec = make_cpu_exec(1);
    LowRankWeights factors = problem.start({4});
    const auto student = make_low_rank_student(factors);
    const auto report = train_kl(*exec, problem.samples, problem.teacher, *student, quick(), {});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().kind, ErrorKind::bad_input);
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
    const auto exec = make_cpu_exec(2);
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
                  spherical_kmeans(*make_cpu_exec(1), rows.view(), {8, 50, seed}, {})->cluster_of);
    }
    EXPECT_FALSE(spherical_kmeans(*exec, rows.view(), {901, 5, 0}, {}).ok());
}

TEST(BalancedGroups, AreEqualAndGiveFrequentTokensTheirNearestGroup) {
    const auto exec = make_cpu_exec(1);
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

TEST(RouterTraining, LearnsWhichGroupsHoldTheBestTokens) {
    const auto exec = make_cpu_exec(2);
    SampleRows rows(12, 2);
    const Dense hidden = uneven_hiddens(800, 12, 51);
    const Dense head = random_dense(40, 12, 52);
    const Dense scores = product(hidden, head);
    for (int r = 0; r < 800; ++r) {
        rows.hidden.append(hidden.row(r));
        rows.embedding.append(hidden.row(r));
        rows.parent.append(hidden.row((r + 1) % 800));
        rows.held_out.push_back(r % 10 == 0 ? 1 : 0);
        rows.level.push_back(0);
        const auto row = scores.row(r);
        std::vector<TokenId> order(40);
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + 2, order.end(),
                          [&](TokenId a, TokenId b) { return row[a] > row[b]; });
        rows.top.insert(rows.top.end(), order.begin(), order.begin() + 2);
    }
    std::vector<std::int32_t> group_of(40);
    for (std::size_t id = 0; id < 40; ++id) group_of[id] = static_cast<std::int32_t>(id / 10);
    RouterOptions options{.width = 16, .epochs = 30, .batch = 32, .rate = 1e-2};
    for (const RouterInput input : {RouterInput::hidden, RouterInput::embedding_and_parent}) {
        RouterReport report;
        const auto router = require(train_router(*exec, rows, input, group_of, 4, options, {}, report));
        EXPECT_LT(report.bce_after, 0.6 * report.bce_before);
        RouterReport again;
        const auto same = train_router(*make_cpu_exec(1), rows, input, group_of, 4, options, {}, again);
        EXPECT_EQ(router.in.data, same->in.data);
        EXPECT_EQ(router.out_bias, same->out_bias);
    }
}

TEST(AffinityMatrix, RowsShareProbabilityAmongTheNearestTokens) {
    const auto exec = make_cpu_exec(2);
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
