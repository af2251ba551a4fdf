#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cpu/matmul/gemm_block.h"
#include "tests/unit/kernels/kernels_test_util.h"

namespace draftscope::kernels {
namespace {

Table random_table(int rows, int cols, std::uint64_t seed) {
    Table table(rows, cols);
    Rng rng(seed);
    for (float& value : table.data) value = static_cast<float>(rng.normal());
    return table;
}

Table transposed(const Table& from) {
    Table to(from.cols, from.rows);
    for (int r = 0; r < from.rows; ++r)
        for (int c = 0; c < from.cols; ++c) to.row(c)[r] = from.at(r, c);
    return to;
}

struct Shape {
    int m, n, k;
};
// Every way the result is split: tall, wide, small with a long sum, one row, odd sizes.
const Shape shapes[] = {{1, 1, 1}, {7, 5, 3}, {1100, 24, 40}, {37, 4100, 19}, {130, 24, 3000}};

/// The whole product as one block of the plain loops.
void gemm_by_loops(Operand a_as, const Table& a, Operand b_as, const Table& b, Table& c, bool accumulate) {
    GemmBlock block{a_as, b_as, c.rows, c.cols, a_as == Operand::plain ? a.cols : a.rows};
    block.a = a.data.data();
    block.a_stride = a.cols;
    block.b = b.data.data();
    block.b_stride = b.cols;
    block.c = c.data.data();
    block.c_stride = c.cols;
    block.accumulate = accumulate;
    gemm_block(block);
}

class Gemm : public ::testing::TestWithParam<bool> {};  // whether to use the plain loops

TEST_P(Gemm, MatchesTheReferenceForEveryLayoutAndSplit) {
    const auto exec = make_cpu_exec(2);
    for (const Shape& s : shapes) {
        const Table a = random_table(s.m, s.k, 1), b = random_table(s.k, s.n, 2);
        const Table at = transposed(a), bt = transposed(b);
        for (const bool accumulate : {false, true}) {
            for (int layout = 0; layout < 4; ++layout) {
                Table c = random_table(s.m, s.n, 3);
                const Table before = c;
                const Operand a_as = layout & 1 ? Operand::transposed : Operand::plain;
                const Operand b_as = layout & 2 ? Operand::transposed : Operand::plain;
                const Table &left = layout & 1 ? at : a, &right = layout & 2 ? bt : b;
                if (GetParam()) {
                    gemm_by_loops(a_as, left, b_as, right, c, accumulate);
                } else {
                    gemm(*exec, a_as, left.view(), b_as, right.view(), c.view(), accumulate);
                }
                for (int r = 0; r < s.m; r += 3) {
                    for (int j = 0; j < s.n; j += 7) {
                        double exact = accumulate ? before.at(r, j) : 0.0, size = std::abs(exact);
                        for (int i = 0; i < s.k; ++i) {
                            const double term = static_cast<double>(a.at(r, i)) * b.at(i, j);
                            exact += term;
                            size += std::abs(term);
                        }
                        ASSERT_NEAR(c.at(r, j), exact, (s.k + 2) * f32_epsilon * size)
                            << s.m << "x" << s.n << "x" << s.k << " layout " << layout << " at " << r << ","
                            << j;
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Products, Gemm, ::testing::Bool());

TEST(GemmThreads, GiveTheSameBitsAtEveryCount) {
    const auto one = make_cpu_exec(1);
    for (const int threads : {2, 3, 5}) {
        const auto many = make_cpu_exec(threads);
        for (const Shape& s : shapes) {
            const Table a = random_table(s.m, s.k, 1), b = random_table(s.k, s.n, 2);
            Table x(s.m, s.n), y(s.m, s.n);
            gemm(*one, Operand::plain, a.view(), Operand::plain, b.view(), x.view());
            gemm(*many, Operand::plain, a.view(), Operand::plain, b.view(), y.view());
            EXPECT_EQ(x.data, y.data) << s.m << "x" << s.n << "x" << s.k << ", " << threads << " threads";
        }
    }
}

/// KL(softmax(t) || softmax(s)) in double.
double exact_kl(const float* t, const float* s, int n) {
    double zt = 0, zs = 0, kl = 0;
    for (int i = 0; i < n; ++i) zt += std::exp(static_cast<double>(t[i]));
    for (int i = 0; i < n; ++i) zs += std::exp(static_cast<double>(s[i]));
    for (int i = 0; i < n; ++i) {
        const double p = std::exp(static_cast<double>(t[i])) / zt;
        if (p > 0) kl += p * (t[i] - std::log(zt) - s[i] + std::log(zs));
    }
    return kl;
}

TEST(ForwardKl, IsTheDivergenceAndItsGradientOnEveryInstructionSet) {
    for (const Isa isa : isas()) {
        const auto exec = make_cpu_exec(2, isa);
        for (const int n : {1, 15, 16, 37, 5000}) {
            Table teacher = random_table(3, n, 4);
            const Table student = random_table(3, n, 5);
            if (n > 20) teacher.row(1)[17] = -std::numeric_limits<float>::infinity();
            const std::vector<float> weights = {1.0f, 0.5f, 2.0f};
            std::vector<float> kl(3);
            Table gradient(3, n);
            forward_kl(*exec, teacher.view(), student.view(), weights, kl, gradient.view());
            for (int r = 0; r < 3; ++r) {
                EXPECT_NEAR(kl[r], exact_kl(teacher.row(r), student.row(r), n), 2e-6 * n)
                    << name_of(isa) << " n=" << n;
                // Compared with finite differences of the exact divergence.
                for (int j = 0; j < n; j += 1 + n / 7) {
                    Table moved = student;
                    constexpr double step = 1e-2;
                    moved.row(r)[j] = student.at(r, j) + static_cast<float>(step);
                    const double up = exact_kl(teacher.row(r), moved.row(r), n);
                    moved.row(r)[j] = student.at(r, j) - static_cast<float>(step);
                    const double down = exact_kl(teacher.row(r), moved.row(r), n);
                    EXPECT_NEAR(gradient.at(r, j), static_cast<double>(weights[r]) * (up - down) / (2 * step),
                                2e-5)
                        << name_of(isa) << " n=" << n << " column " << j;
                }
            }
        }
    }
}

TEST(ForwardKl, OfARowWithItselfIsZeroAndMayAliasTheStudent) {
    const auto exec = make_cpu_exec(1);
    const Table teacher = random_table(2, 300, 6);
    Table student = teacher;
    const std::vector<float> weights = {1.0f, 1.0f};
    std::vector<float> kl(2);
    forward_kl(*exec, teacher.view(), student.view(), weights, kl, student.view());
    EXPECT_EQ(kl, (std::vector<float>{0.0f, 0.0f}));
    for (const float value : student.data) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace draftscope::kernels
