#include "kernels/cpu/matmul_topk.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/row_ops.h"
#include "kernels/host_rows.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

/// A head of n rows; every third row repeats an earlier one, so that logits tie.
Matrix make_head(ThreadPool& exec, Packing packing, int n, int k) {
    const Table base = hard_table(n, k, static_cast<std::uint64_t>(n + k));
    Table rows(n, k);
    for (int row = 0; row < n; ++row) std::copy_n(base.row(row % 3 == 2 ? row / 2 : row), k, rows.row(row));
    return pack_as(exec, packing, rows);
}

void expect_plain_bits(ThreadPool& exec, const Matrix& head, const Table& x, int support, int k,
                       const float* bias) {
    const int rows = x.rows;
    Table logits(rows, head.n());
    matmul(exec, head, x.view(), logits.view(), bias);
    const Rows<const float> real(logits.data.data(), rows, support, logits.cols);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k)), found_ids(ids);
    std::vector<float> values(ids.size()), found_values(values);
    std::vector<float> sums(static_cast<std::size_t>(rows)), found_sums(sums);
    topk(exec, real, k, Rows<std::int32_t>(ids.data(), rows, k), Rows<float>(values.data(), rows, k));
    logsumexp(exec, real, sums);
    PartialTopK partials;
    matmul_topk(exec, head, x.view(), support, k, bias, partials);
    finish_logsumexp(partials, found_sums);
    finish_topk(partials, Rows<std::int32_t>(found_ids.data(), rows, k),
                Rows<float>(found_values.data(), rows, k));
    EXPECT_EQ(found_ids, ids);
    EXPECT_TRUE(same_bits(found_values.data(), values.data(), rows * k));
    EXPECT_TRUE(same_bits(found_sums.data(), sums.data(), rows));
}

TEST(MatmulTopK, MatchesMatmulTopkAndLogsumexp) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 3}) {
            const std::unique_ptr<ThreadPool> exec = make_thread_pool(threads, isa);
            for (const Packing packing : packings) {
                for (const int n : {40, 2048, 2500}) {
                    const Matrix head = make_head(*exec, packing, n, 97);
                    const Table bias = hard_table(1, n, 3);
                    for (const int rows : {1, 19}) {
                        SCOPED_TRACE(name_of(isa) + " " + name_of(packing) + " threads " +
                                     std::to_string(threads) + " n " + std::to_string(n) + " rows " +
                                     std::to_string(rows));
                        const Table x = hard_table(rows, 97, static_cast<std::uint64_t>(rows));
                        expect_plain_bits(*exec, head, x, n, 10, nullptr);
                        expect_plain_bits(*exec, head, x, n - 7, std::min(max_fused_topk, n - 7),
                                          bias.row(0));
                        expect_plain_bits(*exec, head, x, 1, 1, nullptr);
                    }
                }
            }
        }
    }
}

/// A thread may steal chunks with lower numbers than its own; ties must still go to the lowest token.
TEST(MatmulTopK, StolenChunksKeepTheOrderOfTies) {
    constexpr int n = 6144, k = 97, repeats = 40;
    const float infinity = std::numeric_limits<float>::infinity();
    Table zero(1, k), alike(1, n), few(1, n), two(1, n), falling(1, n);
    for (int i = 0; i < n; ++i) {
        few.row(0)[i] = i % 1500 == 700 ? 1.0f : -infinity;
        two.row(0)[i] = i % 3 == 0 ? -2.0f : -2.5f;
        falling.row(0)[i] = static_cast<float>(-i / 7);
    }
    for (const int threads : {2, 3}) {
        const std::unique_ptr<ThreadPool> exec = make_thread_pool(threads);
        const Matrix head = make_head(*exec, {Precision::int8, false}, n, k);
        for (int repeat = 0; repeat < repeats; ++repeat) {
            for (const Table* bias : {&alike, &few, &two, &falling})
                expect_plain_bits(*exec, head, zero, n, 10, bias->row(0));
            if (HasFailure()) return;
        }
    }
}

TEST(MatmulTopK, PaysOffIfThreadsCanShareTheChunks) {
    const std::unique_ptr<ThreadPool> two = make_thread_pool(2);
    EXPECT_TRUE(prefers_fused_topk(*two, 49152, 10));
    EXPECT_TRUE(prefers_fused_topk(*two, 8192, 10));
    EXPECT_FALSE(prefers_fused_topk(*two, 1000, 10));
    EXPECT_FALSE(prefers_fused_topk(*two, 49152, max_fused_topk + 1));
    EXPECT_TRUE(prefers_fused_topk(*make_thread_pool(1), 1000, 10));
}

/// `row(i)` of the matrix is a single number, so that logits are multiples of x.
Matrix ladder(ThreadPool& exec, int n, float (*value)(int row)) {
    return Matrix::pack(exec, Precision::f32, n, 16, [&](int row, float* out) {
        std::fill_n(out, 16, 0.0f);
        out[0] = value(row);
    });
}

void expect_plain_set(ThreadPool& exec, const Matrix& head, const Table& x, int k) {
    const int rows = x.rows;
    Table logits(rows, head.n());
    matmul(exec, head, x.view(), logits.view());
    std::vector<std::int32_t> expected(static_cast<std::size_t>(rows * k)), found(expected), best(expected);
    std::vector<float> values(expected.size());
    topk(exec, logits.view(), k, Rows<std::int32_t>(best.data(), rows, k),
         Rows<float>(values.data(), rows, k));
    for (int r = 0; r < rows; ++r) std::sort(best.begin() + r * k, best.begin() + (r + 1) * k);
    topk_set(exec, logits.view(), k, Rows<std::int32_t>(expected.data(), rows, k));
    matmul_topk_set(exec, head, x.view(), k, Rows<std::int32_t>(found.data(), rows, k), values);
    EXPECT_EQ(expected, best);
    EXPECT_EQ(found, best);
}

TEST(MatmulTopKSet, MatchesTopk) {
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2}) {
            const std::unique_ptr<ThreadPool> exec = make_thread_pool(threads, isa);
            for (const Packing packing : packings) {
                // Below and above the size from which a sample is taken; the last size is not a whole number
                // of blocks.
                for (const int n : {200, 9001}) {
                    const Matrix head = make_head(*exec, packing, n, 24);
                    for (const int rows : {1, 6}) {
                        const Table x = hard_table(rows, 24, static_cast<std::uint64_t>(rows + 1));
                        for (const int k : {1, 200}) expect_plain_set(*exec, head, x, k);
                        if (n > 3000) expect_plain_set(*exec, head, x, 2048);
                    }
                }
            }
        }
    }
}

TEST(MatmulTopKSet, MisleadingSamplesChangeNothing) {
    const std::unique_ptr<ThreadPool> exec = make_thread_pool(2);
    Table x(2, 16);
    x.row(0)[0] = 1.0f;
    x.row(1)[0] = -1.0f;
    constexpr int n = 16384;
    // All equal; two levels; the best in one corner; the best exactly outside the sample; infinities.
    for (float (*value)(int) :
         {+[](int) { return 1.0f; }, +[](int row) { return row % 2 == 0 ? 1.0f : 2.0f; },
          +[](int row) { return static_cast<float>(-row); },
          +[](int row) { return row % 16 == 3 && row / 16 % 7 == 1 ? 5.0f : 0.0f; },
          +[](int row) { return row < 500 ? INFINITY : 0.0f; }}) {
        const Matrix head = ladder(*exec, n, value);
        for (const int k : {1, 16, 100, 1000, 3000}) expect_plain_set(*exec, head, x, k);
    }
}

// Low-rank factors whose outputs are filtered as they leave the tiles, on machines with AMX. Cases: one and
// two tiles of a group of inputs, rows that fill one and two, whole and half chunks of bf16.
TEST(MatmulTopKSet, HandlesLowRankFactors) {
    const std::unique_ptr<ThreadPool> exec = make_thread_pool(2, isas().back());
    for (const Precision precision : {Precision::int8, Precision::bf16}) {
        for (const int inputs : {1, 36, 72, 128, 129}) {
            const Matrix head = make_head(*exec, {precision, false}, 8207, inputs);
            for (const int rows : {2, 9, 17}) {
                SCOPED_TRACE("inputs " + std::to_string(inputs) + " rows " + std::to_string(rows));
                const Table x = hard_table(rows, inputs, static_cast<std::uint64_t>(rows + inputs));
                for (const int k : {1, 700}) expect_plain_set(*exec, head, x, k);
            }
        }
    }
}

}  // namespace
}  // namespace draftscope::kernels
