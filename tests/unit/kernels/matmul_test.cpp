#include <algorithm>
#include <numeric>

#include "kernels/cpu/matmul/fused.h"
#include "kernels/host_rows.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

/// Bound on an output's error relative to the exact product of the packed weights and the given activations.
/// - f32, bf16: K roundings of the running sum. Dot products of bf16 pairs also round each activation (2^-9).
/// - int8: The activations of 128 columns share the scale largest/16256 (two bytes each), so each is off by
/// at
///   most half a step. The integer sums are exact up to 24 bits; the sum over groups rounds like f32.
/// - int4: As int8, with 32 columns and largest/127. Because scale * q and the minimum are added separately,
/// the
///   rounding error is relative to the largest weight of a group times every activation.
double error_bound(Precision precision, Isa isa, std::span<const float> w, const float* x) {
    double magnitude = 0;
    double quantised = 0;
    double apart = 0;
    const double steps = precision == Precision::int8 ? 16256.0 : 127.0;
    const std::size_t group = precision == Precision::int8 ? 128 : 32;
    for (std::size_t block = 0; block < w.size(); block += group) {
        double largest = 0;
        double weights = 0;
        double heaviest = 0;
        double activations = 0;
        for (std::size_t i = block; i < std::min(block + group, w.size()); ++i) {
            magnitude += std::fabs(static_cast<double>(w[i]) * static_cast<double>(x[i]));
            largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
            weights += std::fabs(static_cast<double>(w[i]));
            heaviest = std::max(heaviest, std::fabs(static_cast<double>(w[i])));
            activations += std::fabs(static_cast<double>(x[i]));
        }
        quantised += largest / (2.0 * steps) * (1.0 + 1e-4) * weights;
        apart += 3.0 * heaviest * (activations + largest);
    }
    const double terms = static_cast<double>(w.size()) + 4.0;
    double bound = terms * (f32_epsilon * (magnitude + quantised) + f32_smallest * 2000.0);
    if (precision == Precision::bf16 && isa >= Isa::avx512_bf16) bound += magnitude / 256.0;
    if (precision == Precision::int8 || precision == Precision::int4) bound += quantised;
    if (precision == Precision::int4) bound += terms * f32_epsilon * apart;
    return bound;
}

void check_against_double(ThreadPool& exec, Packing packing, int n, int k, int m, bool with_bias) {
    SCOPED_TRACE(name_of(exec.isa()) + " " + name_of(packing) + " n " + std::to_string(n) + " k " +
                 std::to_string(k) + " m " + std::to_string(m));
    const Table w = hard_table(n, k, static_cast<std::uint64_t>(n + 7 * k));
    const Table x = hard_table(m, k, static_cast<std::uint64_t>(m + 3 * k));
    const Table bias = hard_table(1, n, 9);
    const Matrix matrix = pack_as(exec, packing, w);
    Table y(m, n);
    matmul(exec, matrix, x.view(), y.view(), with_bias ? bias.row(0) : nullptr);
    std::vector<float> row(static_cast<std::size_t>(k));
    for (int j = 0; j < n; ++j) {
        matrix.unpack_row(j, row);
        for (int i = 0; i < m; ++i) {
            double expected = with_bias ? bias.at(0, j) : 0.0;
            for (int c = 0; c < k; ++c)
                expected += static_cast<double>(row[c]) * static_cast<double>(x.at(i, c));
            const double allowed = error_bound(packing.precision, exec.isa(), row, x.row(i)) +
                                   2.0 * f32_epsilon * std::fabs(expected);
            ASSERT_LE(std::fabs(y.at(i, j) - expected), allowed) << "row " << i << " output " << j;
        }
    }
}

TEST(Matmul, MatchesDoublePrecision) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const Packing packing : packings) {
            check_against_double(*exec, packing, 1, 1, 1, false);
            check_against_double(*exec, packing, 15, 33, 3, true);
            check_against_double(*exec, packing, 33, 64, 13, false);
            check_against_double(*exec, packing, 50, 577, 8, true);
            check_against_double(*exec, packing, 35, 1729, 25, false);
            for (int m = 1; m <= 80; ++m)
                check_against_double(*exec, packing, 5, m > 20 ? 45 : 161, m, m % 2 == 0);
        }
    }
}

/// int8 compared with the weights before packing, on normal data: the loss of a model.
TEST(Matmul, Int8LosesUnderOnePercentOfTheSignal) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(1, isa);
        constexpr int n = 64;
        constexpr int k = 576;
        Table w(n, k);
        Table x(4, k);
        Rng rng(3);
        for (float& v : w.data) v = static_cast<float>(rng.normal());
        for (float& v : x.data) v = static_cast<float>(rng.normal());
        x.row(1)[17] *= 1000.0f;  // an outlier channel must not swamp the others
        Table y(4, n);
        matmul(*exec, pack_table(*exec, Precision::int8, w), x.view(), y.view());
        for (int i = 0; i < 4; ++i) {
            double wrong = 0;
            double signal = 0;
            for (int j = 0; j < n; ++j) {
                double expected = 0;
                for (int c = 0; c < k; ++c) expected += static_cast<double>(w.at(j, c)) * x.at(i, c);
                wrong += (y.at(i, j) - expected) * (y.at(i, j) - expected);
                signal += expected * expected;
            }
            EXPECT_LT(std::sqrt(wrong / signal), 0.012) << name_of(isa) << " row " << i;
        }
    }
}

struct Case {
    Table w;
    Table x;
    Table expected;  ///< all 80 rows at once on one thread
};

Case make_case(Isa isa, Packing packing, int n, int k) {
    Case c{hard_table(n, k, 11), hard_table(80, k, 12), Table(80, n)};
    auto exec = make_thread_pool(1, isa);
    matmul(*exec, pack_as(*exec, packing, c.w), c.x.view(), c.expected.view());
    return c;
}

constexpr int odd_shapes[][2] = {{300, 577}, {17, 1729}, {64, 64}, {48, 72}};

TEST(Matmul, ARowIsIndependentOfTheBatchSize) {
    for (const Isa isa : isas()) {
        for (const Packing packing : packings) {
            for (const auto& [n, k] : odd_shapes) {
                SCOPED_TRACE(name_of(isa) + " " + name_of(packing) + " k " + std::to_string(k));
                const Case c = make_case(isa, packing, n, k);
                auto exec = make_thread_pool(2, isa);
                const Matrix matrix = pack_as(*exec, packing, c.w);
                for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 33, 64}) {
                    for (int first = 0; first + m <= 80; first += 29) {
                        Table y(m, n);
                        // Announced weights are read as one stream per thread, by tiles of another shape.
                        prefetch_next(*exec, first == 29 ? &matrix : nullptr);
                        matmul(*exec, matrix, c.x.view().slice(first, m), y.view());
                        ASSERT_TRUE(same_bits(y.row(0), c.expected.row(first), m * n)) << "m " << m;
                    }
                }
            }
        }
    }
}

TEST(Matmul, IsIndependentOfThreadsRowOrderAndStride) {
    for (const Isa isa : isas()) {
        for (const Packing packing : packings) {
            for (const auto& [n, k] : odd_shapes) {
                SCOPED_TRACE(name_of(isa) + " " + name_of(packing) + " k " + std::to_string(k));
                const Case c = make_case(isa, packing, n, k);
                std::vector<int> order(80);
                std::iota(order.begin(), order.end(), 0);
                Rng rng(13);
                for (std::size_t i = order.size() - 1; i > 0; --i)
                    std::swap(order[i], order[rng.below(static_cast<std::uint32_t>(i + 1))]);
                Table shuffled(80, k + 3);
                for (int r = 0; r < 80; ++r) std::copy_n(c.x.row(order[r]), k, shuffled.row(r));
                for (const int threads : {1, 2, 3, 4}) {
                    auto exec = make_thread_pool(threads, isa);
                    const Matrix matrix = pack_as(*exec, packing, c.w);
                    Table y(80, n + 5);
                    std::fill(y.data.begin(), y.data.end(), 42.0f);
                    matmul(*exec, matrix, Rows<const float>(shuffled.data.data(), 80, k, k + 3),
                           Rows<float>(y.data.data(), 80, n, n + 5));
                    for (int r = 0; r < 80; ++r) {
                        ASSERT_TRUE(same_bits(y.row(r), c.expected.row(order[r]), n));
                        for (int i = n; i < n + 5; ++i) ASSERT_EQ(y.at(r, i), 42.0f) << "wrote past the row";
                    }
                }
            }
        }
    }
}

/// Announcing weights only prefetches them, even if they are freed before use or never used.
TEST(Matmul, PrefetchHintsChangeNoBit) {
    for (const Packing packing : packings) {
        const Case c = make_case(best_isa(), packing, 300, 577),
                   d = make_case(best_isa(), packing, 1280, 160);
        auto exec = make_thread_pool(2);
        const Matrix one = pack_as(*exec, packing, c.w), two = pack_as(*exec, packing, d.w);
        for (const int m : {1, 3, 9, 17}) {
            Table y(m, 300), z(m, 1280);
            for (int call = 0; call < 3; ++call) {
                prefetch_next(*exec, &two);
                matmul(*exec, one, c.x.view().slice(0, m), y.view());
                prefetch_next(*exec, call == 0 ? &one : nullptr);
                matmul(*exec, two, d.x.view().slice(0, m), z.view());
                ASSERT_TRUE(same_bits(y.row(0), c.expected.row(0), m * 300))
                    << name_of(packing) << " m " << m;
                ASSERT_TRUE(same_bits(z.row(0), d.expected.row(0), m * 1280))
                    << name_of(packing) << " m " << m;
            }
            {
                const Matrix gone = pack_as(*exec, packing, c.w);
                prefetch_next(*exec, &gone);
            }
            matmul(*exec, two, d.x.view().slice(0, m), z.view());
            ASSERT_TRUE(same_bits(z.row(0), d.expected.row(0), m * 1280)) << name_of(packing) << " m " << m;
        }
    }
}

/// Integer sums are exact and take the same f32 steps on every path with fused multiply-add.
TEST(Matmul, IntegerPathsWithFusedMultiplyAddAgreeBitForBit) {
    if (supported_isa() < Isa::avx512) return;
    for (const Packing packing : packings) {
        if (packing.precision != Precision::int8 && packing.precision != Precision::int4) continue;
        const Case reference = make_case(Isa::avx2, packing, 300, 577);
        for (const Isa isa : isas()) {
            if (isa == Isa::portable) continue;
            const Case c = make_case(isa, packing, 300, 577);
            EXPECT_TRUE(same_bits(c.expected.row(0), reference.expected.row(0), 80 * 300))
                << name_of(isa) << " " << name_of(packing);
        }
    }
}

TEST(Matmul, AcceptsZeroRows) {
    auto exec = make_thread_pool(2);
    const Matrix matrix = pack_table(*exec, Precision::f32, hard_table(20, 64, 1));
    Table y(0, 20);
    matmul(*exec, matrix, Rows<const float>(nullptr, 0, 64), y.view());
}

}  // namespace
}  // namespace draftscope::kernels
