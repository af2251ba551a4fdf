#include "kernels/matrix.h"

#include <algorithm>

#include "kernels/matmul.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

std::vector<float> unpacked(const Matrix& matrix, int row) {
    std::vector<float> out(static_cast<std::size_t>(matrix.k()));
    matrix.unpack_row(row, out);
    return out;
}

TEST(Matrix, PrecisionNamesRoundTrip) {
    for (const Precision p : {Precision::f32, Precision::bf16, Precision::int8}) {
        EXPECT_EQ(precision_from(to_text(p)), p);
    }
    EXPECT_FALSE(precision_from("fp8").has_value());
}

TEST(Matrix, UnpacksWhatWasPackedWithinItsPrecision) {
    auto exec = make_cpu_exec(2);
    for (const int n : {1, 16, 37}) {
        for (const int k : {1, 31, 64, 97, 577}) {
            const Table w = hard_table(n, k, static_cast<std::uint64_t>(n * 1000 + k));
            const Matrix f32 = pack_table(*exec, Precision::f32, w);
            const Matrix bf16 = pack_table(*exec, Precision::bf16, w);
            const Matrix int8 = pack_table(*exec, Precision::int8, w);
            EXPECT_EQ(f32.n(), n);
            EXPECT_EQ(f32.k(), k);
            EXPECT_FALSE(int8.empty());
            for (int r = 0; r < n; ++r) {
                EXPECT_TRUE(same_bits(unpacked(f32, r).data(), w.row(r), k));
                const std::vector<float> half = unpacked(bf16, r);
                const std::vector<float> byte = unpacked(int8, r);
                for (int c = 0; c < k; ++c) {
                    const double value = w.at(r, c);
                    float largest = 0.0f;
                    for (int i = c / 64 * 64; i < std::min(c / 64 * 64 + 64, k); ++i) {
                        largest = std::max(largest, std::fabs(w.at(r, i)));
                    }
                    const auto at = static_cast<std::size_t>(c);
                    EXPECT_LE(std::fabs(half[at] - value), std::fabs(value) / 256.0 + f32_smallest);
                    // Half a step, whose scale was rounded up by at most one bf16 ulp (2^-7).
                    EXPECT_LE(std::fabs(byte[at] - value), largest / 254.0 * (1 + 1.0 / 127) + f32_smallest);
                }
            }
        }
    }
}

TEST(Matrix, CountsTheBytesOneMatmulReads) {
    auto exec = make_cpu_exec(1);
    const Table w = hard_table(32, 64, 1);
    EXPECT_EQ(pack_table(*exec, Precision::f32, w).bytes(), 32u * 64u * 4u);
    EXPECT_EQ(pack_table(*exec, Precision::bf16, w).bytes(), 32u * 64u * 2u);
    EXPECT_EQ(pack_table(*exec, Precision::int8, w).bytes(), 32u * (64u + 2u));
}

TEST(Matrix, GatheredRowsGiveTheSameBitsAsTheFullMatrix) {
    constexpr int n = 301;
    for (const Isa isa : isas()) {
        auto exec = make_cpu_exec(2, isa);
        for (const int k : {64, 97, 577}) {
            const Table w = hard_table(n, k, 5);
            const Table x = hard_table(9, k, 6);
            Rng rng(7);
            std::vector<TokenId> ids;
            for (int i = 0; i < 77; ++i) ids.push_back(static_cast<TokenId>(rng.below(n)));
            ids.push_back(n - 1);
            for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8}) {
                SCOPED_TRACE(name_of(isa) + " " + name_of(precision) + " k " + std::to_string(k));
                const Matrix full = pack_table(*exec, precision, w);
                const Matrix kept = full.gather_rows(*exec, ids);
                Table all(x.rows, n);
                Table some(x.rows, static_cast<int>(ids.size()));
                matmul(*exec, full, x.view(), all.view());
                matmul(*exec, kept, x.view(), some.view());
                for (int i = 0; i < some.cols; ++i) {
                    const TokenId id = ids[static_cast<std::size_t>(i)];
                    EXPECT_EQ(unpacked(kept, i), unpacked(full, id));
                    for (int m = 0; m < x.rows; ++m) {
                        ASSERT_TRUE(same_bits(some.row(m) + i, all.row(m) + id, 1))
                            << "row " << m << " id " << id;
                    }
                }
            }
        }
    }
}

TEST(Matrix, AnEmptySelectionIsAnEmptyMatrix) {
    auto exec = make_cpu_exec(2);
    const Matrix full = pack_table(*exec, Precision::int8, hard_table(20, 64, 1));
    const Matrix none = full.gather_rows(*exec, {});
    EXPECT_TRUE(none.empty());
    EXPECT_TRUE(Matrix().empty());
    const Table x = hard_table(2, 64, 2);
    Table y(2, 0);
    matmul(*exec, none, x.view(), y.view());
}

}  // namespace
}  // namespace draftscope::kernels
