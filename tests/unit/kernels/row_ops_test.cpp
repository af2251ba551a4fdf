#include "tests/support/row_ops.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cpu/vector/elementwise.h"
#include "kernels/rope.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

constexpr int widths[] = {1, 15, 16, 17, 63, 576, 1729};

/// Runs `op(exec, table)` in place on all rows, then row by row and on other thread counts: same bits.
template <typename Op>
void check_batch_invariance(Isa isa, const Table& input, Op op) {
    Table all = input;
    op(*make_thread_pool(1, isa), all.view(), 0);
    for (const int threads : {1, 2, 3, 4}) {
        auto exec = make_thread_pool(threads, isa);
        Table again = input;
        op(*exec, again.view(), 0);
        ASSERT_TRUE(same_bits(again.row(0), all.row(0), input.rows * input.cols)) << threads << " threads";
        Table alone = input;
        for (int r = 0; r < input.rows; ++r) op(*exec, alone.view().slice(r, 1), r);
        ASSERT_TRUE(same_bits(alone.row(0), all.row(0), input.rows * input.cols)) << "row by row";
    }
}

TEST(RmsNorm, MatchesDoublePrecision) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int n : widths) {
            const Table x = hard_table(7, n, static_cast<std::uint64_t>(n));
            const Table weight = hard_table(1, n, 2);
            Table y(7, n);
            rms_norm(*exec, x.view(), weight.view().row(0), 1e-5f, y.view());
            for (int r = 0; r < 7; ++r) {
                double squares = 0;
                for (int c = 0; c < n; ++c) squares += static_cast<double>(x.at(r, c)) * x.at(r, c);
                const double factor = 1.0 / std::sqrt(squares / n + static_cast<double>(1e-5f));
                for (int c = 0; c < n; ++c) {
                    const double expected = x.at(r, c) * factor * weight.at(0, c);
                    // The lane sums round at most n / 16 + 8 times; 4 more operations follow.
                    const double allowed = (n / 16.0 + 12.0) * f32_epsilon * std::fabs(expected);
                    ASSERT_NEAR(y.at(r, c), expected, allowed + 1e-30) << name_of(isa) << " n " << n;
                }
            }
        }
    }
}

TEST(RmsNorm, IsBatchInvariantAndWorksInPlace) {
    for (const Isa isa : isas()) {
        const Table weight = hard_table(1, 577, 2);
        check_batch_invariance(isa, hard_table(80, 577, 1), [&](ThreadPool& exec, Rows<float> x, int) {
            rms_norm(exec, x, weight.view().row(0), 1e-5f, x);
        });
    }
}

TEST(SiluMul, MatchesDoublePrecision) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int n : widths) {
            Table gate = hard_table(5, n, static_cast<std::uint64_t>(n));
            const Table up = hard_table(5, n, 3);
            gate.row(0)[0] = -200.0f;
            gate.row(1)[n - 1] = 200.0f;
            Table y(5, n);
            silu_mul(*exec, gate.view(), up.view(), y.view());
            for (int i = 0; i < 5 * n; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const double g = gate.data[at];
                const double expected = g / (1.0 + std::exp(-g)) * up.data[at];
                // exp is accurate to 2e-7; silu flushes to zero below e^-87, and denormal operands are
                // flushed, too.
                const double flushed = 1e-32 * std::fabs(up.data[at]) + f32_smallest * (1.0 + std::fabs(g));
                ASSERT_NEAR(y.data[at], expected, 5e-7 * std::fabs(expected) + flushed)
                    << name_of(isa) << " gate " << g;
            }
        }
    }
}

TEST(SiluMul, IsBatchInvariantAndMayAlias) {
    for (const Isa isa : isas()) {
        const Table up = hard_table(80, 1729, 4);
        check_batch_invariance(isa, hard_table(80, 1729, 1), [&](ThreadPool& exec, Rows<float> x, int first) {
            silu_mul(exec, x, up.view().slice(first, x.rows), x);
        });
    }
}

TEST(Add, AddsExactlyOneRounding) {
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(3, isa);
        for (const int n : widths) {
            const Table x = hard_table(70, n, 1);
            const Table before = hard_table(70, n, 2);
            Table y = before;
            add(*exec, x.view(), y.view());
            for (std::size_t i = 0; i < y.data.size(); ++i) {
                ASSERT_NEAR(y.data[i], before.data[i] + x.data[i], 1e-37);
            }
        }
    }
}

TEST(RoundToBf16, RoundsTiesToEvenAndKeepsSpecials) {
    const auto from_bits = [](std::uint32_t bits) {
        float value;
        std::memcpy(&value, &bits, sizeof(value));
        return value;
    };
    const std::vector<std::pair<std::uint32_t, std::uint32_t>> cases = {
        {0x3f800000, 0x3f800000}, {0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000},
        {0x3f808001, 0x3f810000}, {0xbf80ffff, 0xbf810000}, {0x7f800000, 0x7f800000},
        {0xff800000, 0xff800000}, {0x7f7fffff, 0x7f800000}, {0x80000000, 0x80000000}};
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(1, isa);
        for (const auto& [in, expected] : cases) {
            Table x(1, 19);
            std::fill(x.data.begin(), x.data.end(), from_bits(in));
            cast_to_bf16(*exec, x.view());
            const float want = from_bits(expected);
            for (int i = 0; i < 19; ++i) EXPECT_TRUE(same_bits(x.row(0) + i, &want, 1)) << std::hex << in;
        }
        Table nan(1, 1);
        nan.row(0)[0] = from_bits(0x7fffffff);
        cast_to_bf16(*exec, nan.view());
        EXPECT_TRUE(std::isnan(nan.at(0, 0)));
    }
}

TEST(Rope, RotatesHalfSplitPairs) {
    const int head_dims[] = {2, 32, 64, 80};
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int dim : head_dims) {
            constexpr int heads = 3;
            const RopeTable table = make_rope_table(dim, 10'000.0f, 300);
            const Table x = hard_table(6, heads * dim, static_cast<std::uint64_t>(dim));
            const std::vector<int> positions = {0, 1, 299, 7, 7, 150};
            Table y = x;
            rope(*exec, y.view(), heads, table, positions);
            for (int r = 0; r < 6; ++r) {
                for (int h = 0; h < heads; ++h) {
                    for (int j = 0; j < dim / 2; ++j) {
                        const double angle = positions[r] * std::pow(10'000.0, -2.0 * j / dim);
                        const double a = x.at(r, h * dim + j);
                        const double b = x.at(r, h * dim + j + dim / 2);
                        const double allowed = 2e-7 * (std::fabs(a) + std::fabs(b)) + 1e-37;
                        ASSERT_NEAR(y.at(r, h * dim + j), a * std::cos(angle) - b * std::sin(angle), allowed);
                        ASSERT_NEAR(y.at(r, h * dim + j + dim / 2), b * std::cos(angle) + a * std::sin(angle),
                                    allowed);
                    }
                }
            }
        }
    }
}

TEST(Rope, DivisorsSlowFrequenciesDown) {
    const std::vector<float> divisors = {1.0f, 8.0f};
    const RopeTable table = make_rope_table(4, 10'000.0f, 20, divisors);
    EXPECT_NEAR(table.cos[19 * 2 + 1], std::cos(19 * 0.01 / 8.0), 1e-7);
    EXPECT_NEAR(table.sin[19 * 2], std::sin(19.0), 1e-7);
}

// A context of 16 million positions costs nothing until they are used.
TEST(Rope, TableGrowsInBlocksWithTheSameValues) {
    RopeTable table = make_rope_table(12, 1e6f, 1 << 24);
    EXPECT_EQ(table.rows(), RopeTable::block);
    table.extend(RopeTable::block);
    EXPECT_EQ(table.rows(), RopeTable::block);
    table.extend(RopeTable::block + 1);
    EXPECT_EQ(table.rows(), 2 * RopeTable::block);
    for (const int p : {0, 1, 4095, 4096, 8191}) {
        for (int j = 0; j < 6; ++j) {
            const double angle = p * std::pow(1e6, -2.0 * j / 12);
            EXPECT_EQ(table.cos[p * 6 + j], static_cast<float>(std::cos(angle)));
            EXPECT_EQ(table.sin[p * 6 + j], static_cast<float>(std::sin(angle)));
        }
    }
    RopeTable shorter = make_rope_table(12, 1e6f, 5000);
    shorter.extend(4097);
    EXPECT_EQ(shorter.rows(), 5000);
    shorter.extend(std::numeric_limits<int>::max());
    EXPECT_EQ(shorter.rows(), 5000);
    EXPECT_EQ(make_rope_table(12, 1e6f, 20).rows(), 20);
}

TEST(Rope, ScaleMultipliesCosAndSin) {
    const RopeTable table = make_rope_table(4, 10'000.0f, 20, {}, 1.5f);
    EXPECT_FLOAT_EQ(table.cos[0], 1.5f);
    EXPECT_FLOAT_EQ(table.sin[3 * 2], 1.5f * std::sin(3.0f));
}

TEST(Rope, IsBatchInvariant) {
    const RopeTable table = make_rope_table(64, 10'000.0f, 100);
    std::vector<int> positions(80);
    std::iota(positions.begin(), positions.end(), 3);
    for (const Isa isa : isas()) {
        check_batch_invariance(
            isa, hard_table(80, 9 * 64, 1), [&](ThreadPool& exec, Rows<float> x, int first) {
                rope(exec, x, 9, table, std::span<const int>(positions).subspan(first, x.rows));
            });
    }
}

}  // namespace
}  // namespace draftscope::kernels
