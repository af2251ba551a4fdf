#include "kernels/cpu/matmul/fused.h"

#include "kernels/cpu/vector/elementwise.h"
#include "kernels/host_rows.h"
#include "kernels_test_util.h"
#include "tests/support/row_ops.h"

namespace draftscope::kernels {
namespace {

constexpr float eps = 1e-5f;
constexpr int row_counts[] = {1, 2, 5, 8, 9, 17, 33};

/// Runs `check(exec, packing, rows)` on every path, packing and thread count.
template <typename Check>
void on_every_path(Check check) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2, 3}) {
            auto exec = make_thread_pool(threads, isa);
            for (const Packing packing : packings) {
                for (const int rows : row_counts) {
                    SCOPED_TRACE(name_of(isa) + " " + name_of(packing) + " threads " +
                                 std::to_string(threads) + " rows " + std::to_string(rows));
                    check(*exec, packing, rows);
                    if (::testing::Test::HasFatalFailure()) return;
                }
            }
        }
    }
}

Table normed(ThreadPool& exec, const Table& x, const Table& weight) {
    Table out(x.rows, x.cols);
    rms_norm(exec, x.view(), {weight.row(0), static_cast<std::size_t>(x.cols)}, eps, out.view());
    return out;
}

PreNorm make_norm(const Table& weight) {
    return {{weight.row(0), static_cast<std::size_t>(weight.cols)}, eps};
}

TEST(Fused, NormMatmulMatchesSeparateOps) {
    constexpr int n = 100, k = 577;
    const Table w = hard_table(n, k, 1), norm = hard_table(1, k, 2), bias = hard_table(1, n, 3);
    on_every_path([&](ThreadPool& exec, Packing packing, int rows) {
        const Table x = hard_table(rows, k, 4);
        const Matrix matrix = pack_as(exec, packing, w);
        Table expected(rows, n), found(rows, n);
        matmul(exec, matrix, normed(exec, x, norm).view(), expected.view(), bias.row(0));
        norm_matmul(exec, matrix, make_norm(norm), x.view(), found.view(), bias.row(0));
        ASSERT_TRUE(same_bits(found.row(0), expected.row(0), rows * n));
        matmul(exec, matrix, x.view(), expected.view());
        norm_matmul(exec, matrix, {}, x.view(), found.view());
        ASSERT_TRUE(same_bits(found.row(0), expected.row(0), rows * n)) << "without a norm";
    });
}

/// Halves of whole blocks share a thread's pieces; others use the separate ops.
TEST(Fused, GatedMatmulMatchesSeparateOps) {
    constexpr int k = 160;
    for (const int ffn : {16, 40, 400}) {
        const Table w = hard_table(2 * ffn, k, 5), norm = hard_table(1, k, 6);
        on_every_path([&](ThreadPool& exec, Packing packing, int rows) {
            const Table x = hard_table(rows, k, 7);
            const Matrix matrix = pack_as(exec, packing, w);
            Table expected(rows, 2 * ffn), found(rows, 2 * ffn);
            matmul(exec, matrix, normed(exec, x, norm).view(), expected.view());
            const auto half = [&](Table& table, int first) {
                return Rows<float>(table.data.data() + first, rows, ffn, 2 * ffn);
            };
            silu_mul(exec, half(expected, 0), half(expected, ffn), half(expected, 0));
            for (const bool announced : {false, true}) {
                if (announced) prefetch_next_gated(exec, matrix);
                norm_matmul_silu(exec, matrix, make_norm(norm), x.view(), found.view(), half(found, 0));
                for (int r = 0; r < rows; ++r)
                    ASSERT_TRUE(same_bits(found.row(r), expected.row(r), ffn))
                        << "ffn " << ffn << " row " << r << (announced ? " announced" : "");
            }
            prefetch_next(exec, nullptr);
        });
    }
}

TEST(Fused, MatmulAddMatchesSeparateOps) {
    constexpr int n = 300, k = 200;
    const Table w = hard_table(n, k, 8);
    on_every_path([&](ThreadPool& exec, Packing packing, int rows) {
        const Table x = hard_table(rows, k, 9), before = hard_table(rows, n, 10);
        const Matrix matrix = pack_as(exec, packing, w);
        Table product(rows, n), expected = before;
        matmul(exec, matrix, x.view(), product.view());
        add(exec, product.view(), expected.view());
        for (const bool announced : {false, true}) {
            Table found = before;
            if (announced) prefetch_next(exec, &matrix);
            matmul_add(exec, matrix, x.view(), product.view(), found.view());
            ASSERT_TRUE(same_bits(found.row(0), expected.row(0), rows * n)) << (announced ? "announced" : "");
        }
        prefetch_next(exec, nullptr);
    });
}

TEST(Fused, AcceptsZeroRows) {
    auto exec = make_thread_pool(2);
    const Matrix matrix = pack_table(*exec, Precision::int8, hard_table(32, 64, 1));
    Table x(0, 64), y(0, 32), sum(0, 32);
    norm_matmul(*exec, matrix, {}, x.view(), y.view());
    norm_matmul_silu(*exec, matrix, {}, x.view(), y.view(), Rows<float>(y.data.data(), 0, 16, 32));
    matmul_add(*exec, matrix, x.view(), y.view(), sum.view());
}

}  // namespace
}  // namespace draftscope::kernels
