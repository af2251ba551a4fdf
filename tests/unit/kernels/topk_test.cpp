#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/vector/dispatch.h"
#include "kernels/cpu/vector/selection.h"
#include "kernels/host_rows.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<std::int32_t> sorted_ids(const float* row, int cols) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(cols));
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return row[a] > row[b]; });
    return ids;
}

void check_topk(ThreadPool& exec, const Table& x, int k) {
    SCOPED_TRACE(name_of(exec.isa()) + " threads " + std::to_string(exec.threads()) + " cols " +
                 std::to_string(x.cols) + " k " + std::to_string(k));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(x.rows * k));
    Table values(x.rows, k);
    topk(exec, x.view(), k, Rows<std::int32_t>(ids.data(), x.rows, k), values.view());
    std::vector<std::int32_t> best(static_cast<std::size_t>(x.rows));
    argmax(exec, x.view(), best);
    std::vector<std::int32_t> set(static_cast<std::size_t>(x.rows * k));
    topk_set(exec, x.view(), k, Rows<std::int32_t>(set.data(), x.rows, k));
    for (int r = 0; r < x.rows; ++r) {
        const std::vector<std::int32_t> expected = sorted_ids(x.row(r), x.cols);
        std::vector<std::int32_t> rising(expected.begin(), expected.begin() + k);
        std::sort(rising.begin(), rising.end());
        ASSERT_EQ(std::vector<std::int32_t>(set.begin() + std::ptrdiff_t{r} * k,
                                            set.begin() + std::ptrdiff_t{r + 1} * k),
                  rising)
            << "row " << r;
        for (int i = 0; i < k; ++i) {
            ASSERT_EQ(ids[r * k + i], expected[i]) << "row " << r << " place " << i;
            ASSERT_EQ(values.at(r, i), x.at(r, expected[i]));
        }
        ASSERT_EQ(best[r], expected[0]);
    }
}

TEST(TopK, OrdersLikeAStableSort) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2, 3}) {
            auto exec = make_thread_pool(threads, isa);
            for (const int cols : {1, 15, 16, 33, 4095, 4097, 20'000}) {
                Table plain(3, cols);
                Table tied(3, cols);
                Rng rng(static_cast<std::uint64_t>(cols));
                for (float& v : plain.data) v = static_cast<float>(rng.normal());
                for (float& v : tied.data) v = static_cast<float>(rng.below(9)) - 4.0f;
                for (const int k : {1, 10, 64, 65, 2048}) {
                    if (k > cols) continue;
                    check_topk(*exec, plain, k);
                    check_topk(*exec, tied, k);
                }
                if (cols < 100) check_topk(*exec, tied, cols);
            }
        }
    }
}

TEST(TopK, MinusInfinityAndZeroSignsTieByIndex) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        Table x(2, 9000);
        std::fill(x.data.begin(), x.data.end(), -infinity);
        x.row(0)[8000] = 1.0f;
        x.row(0)[8999] = infinity;
        for (int c = 0; c < 9000; ++c) x.row(1)[c] = c % 2 == 0 ? -0.0f : 0.0f;
        for (const int k : {1, 5, 64, 100}) check_topk(*exec, x, k);
    }
}

/// Guesses assume that values thin out; they must also hold for ties, steps and every order of magnitude.
TEST(TopK, KthLargestMatchesSort) {
    Rng rng(41);
    const auto value = [&](int kind) {
        const double normal = rng.normal();
        switch (kind) {
            case 0:
                return static_cast<float>(normal);
            case 1:
                return static_cast<float>(std::round(2 * normal));
            case 2:
                return static_cast<float>(normal * std::pow(10.0, 12 * rng.normal()));
            case 3:
                return rng.below(3) == 0 ? -infinity : static_cast<float>(normal);
            case 4:
                return rng.below(50) == 0 ? 1e30f : -0.0f;
            default:
                return 7.0f;
        }
    };
    for (const Isa isa : isas()) {
        const auto exec = make_thread_pool(1, isa);
        for (int kind = 0; kind < 6; ++kind) {
            for (const int n : {1, 2, 15, 33, 257, 1024, 5000}) {
                std::vector<float> x(static_cast<std::size_t>(n));
                for (float& v : x) v = value(kind);
                std::vector<float> sorted = x;
                std::sort(sorted.begin(), sorted.end(), std::greater<>{});
                for (const int k : {1, 2, n / 10 + 1, n / 2 + 1, n * 4 / 5 + 1, n})
                    if (k <= n) {
                        ASSERT_EQ(kth_largest(row_kernels(*exec), x.data(), n, k), sorted[k - 1])
                            << name_of(isa) << " kind " << kind << " n " << n << " k " << k;
                    }
                // With the lowest value as a bound.
                const float least = *std::min_element(x.begin(), x.end());
                ASSERT_EQ(kth_largest(row_kernels(*exec), x.data(), n, n, least), sorted.back());
            }
        }
    }
}

TEST(TopK, ManyRowsEqualRowsAlone) {
    const Table x = hard_table(10, 9000, 3);
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(4, isa);
        for (const int k : {10, 100}) check_topk(*exec, x, k);
    }
}

TEST(TopK, NaNIsNeverSelected) {
    Table x = hard_table(1, 5000, 3);
    for (int c = 0; c < 5000; c += 3) x.row(0)[c] = std::numeric_limits<float>::quiet_NaN();
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int k : {10, 100}) {
            std::vector<std::int32_t> ids(static_cast<std::size_t>(k));
            std::vector<float> values(static_cast<std::size_t>(k));
            topk(*exec, x.view(), k, Rows<std::int32_t>(ids.data(), 1, k), Rows<float>(values.data(), 1, k));
            for (const float v : values) EXPECT_FALSE(std::isnan(v));
        }
        std::vector<std::int32_t> best(1);
        argmax(*exec, x.view(), best);
        EXPECT_NE(best[0] % 3, 0);
    }
}

TEST(LogSumExp, MatchesDoublePrecisionAtEveryWidth) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int cols : {1, 15, 17, 31, 32, 33, 4095, 4096, 4097, 20'000}) {
            Table x(3, cols);
            Rng rng(static_cast<std::uint64_t>(cols));
            for (float& v : x.data) v = static_cast<float>(rng.normal() * 20.0);
            x.row(1)[cols / 2] = 1000.0f;
            x.row(2)[cols - 1] = -infinity;
            if (cols > 1) x.row(2)[0] = -3e38f;
            std::vector<float> out(3);
            logsumexp(*exec, x.view(), out);
            for (int r = 0; r < 3; ++r) {
                double top = -infinity;
                for (int c = 0; c < cols; ++c) top = std::max(top, static_cast<double>(x.at(r, c)));
                double sum = 0;
                for (int c = 0; c < cols && std::isfinite(top); ++c) sum += std::exp(x.at(r, c) - top);
                const double expected = std::isfinite(top) ? top + std::log(sum) : top;
                if (std::isfinite(expected)) {
                    EXPECT_NEAR(out[r], expected, 1e-6 + 1e-7 * std::fabs(expected));
                } else {
                    EXPECT_EQ(out[r], expected);
                }
            }
        }
    }
}

TEST(LogSumExp, IsIndependentOfThreadsAndBatch) {
    const Table x = hard_table(20, 9001, 3);
    for (const Isa isa : isas()) {
        std::vector<float> expected(20);
        logsumexp(*make_thread_pool(1, isa), x.view(), expected);
        for (const int threads : {2, 3, 4}) {
            auto exec = make_thread_pool(threads, isa);
            std::vector<float> all(20);
            logsumexp(*exec, x.view(), all);
            EXPECT_TRUE(same_bits(all.data(), expected.data(), 20));
            for (int r = 0; r < 20; ++r) {
                float alone = 0;
                logsumexp(*exec, x.view().slice(r, 1), {&alone, 1});
                EXPECT_TRUE(same_bits(&alone, &expected[r], 1));
            }
        }
    }
}

Table block_sums(ThreadPool& exec, Rows<const float> x, float scale, std::vector<float>& tops) {
    Table sums(x.rows, (x.cols + exp_sums_block - 1) / exp_sums_block);
    tops.assign(x.rows, 0.0f);
    exp_sums(exec, x, scale, tops, sums.view());
    return sums;
}

TEST(ExpSums, MatchDoubleByBlock) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int cols : {1, 15, 511, 512, 513, 5000}) {
            Table x = hard_table(3, cols, 77);
            x.row(1)[cols / 2] = std::nanf("");
            x.row(2)[cols - 1] = -infinity;
            for (const float scale : {1.0f, 0.5f, 1.7f}) {
                std::vector<float> tops;
                Table sums = block_sums(*exec, x.view(), scale, tops);
                for (int r = 0; r < 3; ++r) {
                    float top = -infinity;
                    for (int c = 0; c < cols; ++c) top = std::fmax(top, x.at(r, c));
                    if (top == -infinity) top = 0;
                    EXPECT_EQ(tops[r], top);
                    for (int b = 0; b * exp_sums_block < cols; ++b) {
                        double expected = 0;
                        for (int c = b * exp_sums_block; c < std::min(cols, (b + 1) * exp_sums_block); ++c) {
                            const float away = (x.at(r, c) - top) * scale;
                            if (!std::isnan(away)) expected += std::exp(static_cast<double>(away));
                        }
                        EXPECT_NEAR(sums.at(r, b), expected, 1e-6 * expected + 1e-30) << cols << " " << b;
                    }
                }
            }
        }
    }
}

TEST(ExpSums, AreIndependentOfThreadsAndBatch) {
    const Table x = hard_table(20, 9001, 3);
    for (const Isa isa : isas()) {
        std::vector<float> tops, other;
        Table expected = block_sums(*make_thread_pool(1, isa), x.view(), 0.8f, tops);
        auto exec = make_thread_pool(3, isa);
        Table all = block_sums(*exec, x.view(), 0.8f, other);
        EXPECT_TRUE(same_bits(all.row(0), expected.row(0), 20 * 18));
        for (int r = 0; r < 20; ++r) {
            Table alone = block_sums(*exec, x.view().slice(r, 1), 0.8f, other);
            EXPECT_TRUE(same_bits(alone.row(0), expected.row(r), 18));
        }
    }
}

}  // namespace
}  // namespace draftscope::kernels
