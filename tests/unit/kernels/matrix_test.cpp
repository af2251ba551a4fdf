#include "kernels/matrix.h"

#include <algorithm>

#include "base/numel.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/host_rows.h"
#include "kernels/packing.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

std::vector<float> unpacked(const Matrix& matrix, int row) {
    std::vector<float> out(static_cast<std::size_t>(matrix.k()));
    matrix.unpack_row(row, out);
    return out;
}

TEST(Matrix, PrecisionNamesRoundTrip) {
    for (const Precision p : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        EXPECT_EQ(precision_from(to_text(p)), p);
    }
    EXPECT_FALSE(precision_from("fp8").has_value());
}

TEST(Matrix, UnpacksWhatWasPackedWithinItsPrecision) {
    auto exec = make_thread_pool(2);
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
                    for (int i = c / 128 * 128; i < std::min(c / 128 * 128 + 128, k); ++i)
                        largest = std::max(largest, std::fabs(w.at(r, i)));
                    const auto at = static_cast<std::size_t>(c);
                    EXPECT_LE(std::fabs(half[at] - value), std::fabs(value) / 256.0 + f32_smallest);
                    // Half a step; the scale was rounded up by at most one bf16 ulp (2^-7).
                    EXPECT_LE(std::fabs(byte[at] - value), largest / 254.0 * (1 + 1.0 / 127) + f32_smallest);
                }
            }
        }
    }
}

bool same_bytes(const Matrix& a, const Matrix& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST(Matrix, PacksBlocksToTheBytesOfSingleRows) {
    for (const Isa isa : {Isa::portable, best_isa()}) {
        auto exec = make_thread_pool(3, isa);
        for (const int n : {1, 16, 37, 200}) {
            for (const int k : {1, 2, 31, 64, 97, 128, 577}) {
                const Table w = hard_table(n, k, static_cast<std::uint64_t>(n * 1000 + k));
                for (const Precision p : {Precision::f32, Precision::bf16, Precision::int8}) {
                    Matrix expected = MatrixAccess::allocate({p, false}, n, k);
                    const std::vector<float> zeros(static_cast<std::size_t>(k));
                    // The pool's threads flush denormals, as the caller does during each op.
                    exec->parallel(1, [&](int) {
                        for (int r = 0; r < round_up(n, lanes); ++r)
                            MatrixAccess::write_row(
                                expected, r,
                                r < n ? std::span<const float>(w.row(r), static_cast<std::size_t>(k))
                                      : zeros);
                    });
                    EXPECT_TRUE(same_bytes(pack_table(*exec, p, w), expected))
                        << to_text(p) << " [" << n << ", " << k << "]";
                }
            }
        }
    }
}

TEST(Matrix, Bf16RowsOfAFileArePackedAsTheyAreAtAnyAlignment) {
    auto exec = make_cpu_backend(2);
    for (const int k : {1, 31, 64, 577}) {
        constexpr int n = 37;
        const Table w = hard_table(n, k, static_cast<std::uint64_t>(k));
        const std::size_t row_bytes = static_cast<std::size_t>(k) * 2;
        std::vector<std::byte> file(1 + n * row_bytes);
        for (int r = 0; r < n; ++r) {
            for (int c = 0; c < k; ++c) {
                const std::uint16_t value = to_bf16(w.at(r, c));
                std::memcpy(&file[1 + numel(r, row_bytes) + 2 * static_cast<std::size_t>(c)], &value, 2);
            }
        }
        const Matrix stored = pack_bf16(*exec, n, k, [&](int r) { return &file[1 + numel(r, row_bytes)]; });
        EXPECT_TRUE(same_bytes(stored, pack_table(exec->pool(), Precision::bf16, w)));
    }
}

TEST(Matrix, PackedBytesRoundTrip) {
    auto exec = make_thread_pool(2);
    const Table w = hard_table(37, 97, 5);
    for (const Packing p : packings) {
        const Matrix matrix = pack_as(*exec, p, w);
        std::span<std::byte> bytes;
        const Matrix copy = allocate_packed(packed_shape(matrix), &bytes);
        ASSERT_EQ(bytes.size(), matrix.bytes());
        std::ranges::copy(packed_bytes(matrix), bytes.begin());
        EXPECT_TRUE(same_bits(unpacked(copy, 36).data(), unpacked(matrix, 36).data(), 97)) << name_of(p);
        PackedShape later = packed_shape(matrix);
        later.layout += 1000;
        EXPECT_TRUE(allocate_packed(later, &bytes).empty());
    }
}

TEST(Matrix, Int4KeepsEveryWeightWithinHalfAStep) {
    auto exec = make_thread_pool(2);
    for (const int k : {1, 31, 64, 97, 577}) {
        const Table w = hard_table(37, k, static_cast<std::uint64_t>(k));
        const Matrix int4 = pack_table(*exec, Precision::int4, w);
        for (int r = 0; r < w.rows; ++r) {
            const std::vector<float> nibbles = unpacked(int4, r);
            for (int c = 0; c < k; ++c) {
                float least = 0.0f, largest = 0.0f;
                for (int i = c / 32 * 32; i < std::min(c / 32 * 32 + 32, k); ++i) {
                    least = std::min(least, w.at(r, i));
                    largest = std::max(largest, w.at(r, i));
                }
                const double range = static_cast<double>(largest) - least;
                // Half a step, plus the errors of the f16 scale (2^-11 of 15 steps) and minimum.
                const double allowed = range / 30.0 + range / 2048.0 + std::fabs(least) / 1024.0 + 1e-7;
                EXPECT_LE(std::fabs(nibbles[c] - w.at(r, c)), allowed);
            }
        }
    }
}

TEST(Matrix, Int4TakesStoredNibblesAsTheyAre) {
    auto exec = make_thread_pool(2);
    constexpr int n = 21, k = 96;
    const auto nibble = [](int row, int c) {
        return static_cast<std::uint8_t>((row * 7 + c * 5 + c / 32) % 16);
    };
    const auto scale = [](int row, int group) { return 0.25f + 0.125f * static_cast<float>(row + group); };
    const auto floats = [&](int row, float* out) { std::fill_n(out, k, static_cast<float>(row)); };
    // Every fourth row is stored in another format.
    const Matrix matrix = pack_int4(*exec, n, k, floats, [&](int row, const Int4Row& out) {
        if (row % 4 == 3) return false;
        for (int c = 0; c < k; ++c) out.q[c] = nibble(row, c);
        for (int g = 0; g < k / 32; ++g) {
            out.scales[g] = to_clamped_f16(scale(row, g));
            out.minimums[g] = to_clamped_f16(-2.0f * scale(row, g));
        }
        return true;
    });
    EXPECT_FALSE(matrix.packing().symmetric);
    for (int r = 0; r < n; ++r) {
        const std::vector<float> row = unpacked(matrix, r);
        for (int c = 0; c < k; ++c) {
            const float expected = r % 4 == 3 ? static_cast<float>(r)
                                              : scale(r, c / 32) * (static_cast<float>(nibble(r, c)) - 2.0f);
            EXPECT_NEAR(row[c], expected, r % 4 == 3 ? 0.01f : 0.0f);
        }
    }
}

TEST(Matrix, SymmetricInt4StoresNoMinimumsAndTheSameWeights) {
    auto exec = make_thread_pool(2);
    for (const int k : {31, 64, 577}) {
        const Table w = hard_table(37, k, static_cast<std::uint64_t>(k));
        const Matrix symmetric = pack_as(*exec, {Precision::int4, true}, w);
        EXPECT_EQ(symmetric.bytes(), static_cast<std::size_t>((k + 31) / 32) * 48 * (16 + 2));
        for (int r = 0; r < w.rows; ++r) {
            const std::vector<float> row = unpacked(symmetric, r);
            for (int c = 0; c < k; ++c) {
                float largest = 0.0f;
                for (int i = c / 32 * 32; i < std::min(c / 32 * 32 + 32, k); ++i)
                    largest = std::max(largest, std::fabs(w.at(r, i)));
                // A whole step, as +8 cannot be represented, plus the f16 scale's rounding; the smallest
                // scales become 0.
                const double allowed = largest / 8.0 * (1 + 1.0 / 128) + 8 * 0x1p-14;
                EXPECT_LE(std::fabs(row[c] - w.at(r, c)), allowed);
            }
        }
    }
}

/// If one row, the last, is not symmetric, all rows keep minimums.
TEST(Matrix, OneAsymmetricRowKeepsAllMinimums) {
    auto exec = make_thread_pool(2);
    constexpr int n = 40, k = 64;
    const auto floats = [](int, float*) {};
    const Matrix matrix = pack_int4(*exec, n, k, floats, [&](int row, const Int4Row& out) {
        std::fill(out.q.begin(), out.q.end(), static_cast<std::uint8_t>(row % 16));
        std::fill(out.scales.begin(), out.scales.end(), to_clamped_f16(0.5f));
        std::fill(out.minimums.begin(), out.minimums.end(), to_clamped_f16(row == n - 1 ? -3.5f : -4.0f));
        return true;
    });
    EXPECT_FALSE(matrix.packing().symmetric);
    for (int r = 0; r < n; ++r) {
        const float expected = 0.5f * static_cast<float>(r % 16) - (r == n - 1 ? 3.5f : 4.0f);
        EXPECT_EQ(unpacked(matrix, r), std::vector<float>(k, expected));
    }
}

TEST(Matrix, F16BitsAreTheNearest) {
    EXPECT_EQ(to_clamped_f16(1.0f), 0x3c00);
    EXPECT_EQ(to_clamped_f16(-2.0f), 0xc000);
    EXPECT_EQ(to_clamped_f16(0.0f), 0);
    EXPECT_EQ(to_clamped_f16(65504.0f), 0x7bff);
    EXPECT_EQ(to_clamped_f16(1e9f), 0x7bff);
    EXPECT_EQ(to_clamped_f16(1.0f + 0x1p-11f), 0x3c00);  // a tie, to even
    EXPECT_EQ(to_clamped_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    EXPECT_EQ(to_clamped_f16(0x1p-24f), 1);  // the smallest
    EXPECT_EQ(to_clamped_f16(0x1p-14f), 0x0400);
    EXPECT_EQ(to_clamped_f16(0x1.ffcp-15f), 0x0400 - 1 + 1);  // rounds up into the normal range
    EXPECT_EQ(to_clamped_f16(2047.6f), 0x6800);               // and across a power of two
}

TEST(Matrix, CountsTheBytesOneMatmulReads) {
    auto exec = make_thread_pool(1);
    const Table w = hard_table(32, 64, 1);
    EXPECT_EQ(pack_table(*exec, Precision::f32, w).bytes(), 32u * 64u * 4u);
    EXPECT_EQ(pack_table(*exec, Precision::bf16, w).bytes(), 32u * 64u * 2u);
    EXPECT_EQ(pack_table(*exec, Precision::int8, w).bytes(), 32u * (64u + 2u));
    EXPECT_EQ(pack_table(*exec, Precision::int4, w).bytes(), 32u * (32u + 2u * 4u));
    EXPECT_EQ(pack_as(*exec, {Precision::int4, true}, w).bytes(), 32u * (32u + 2u * 2u));
}

TEST(Matrix, GatheredRowsGiveTheSameBitsAsTheFullMatrix) {
    constexpr int n = 301;
    for (const Isa isa : isas()) {
        auto exec = make_thread_pool(2, isa);
        for (const int k : {64, 97, 577}) {
            const Table w = hard_table(n, k, 5);
            const Table x = hard_table(9, k, 6);
            Rng rng(7);
            std::vector<TokenId> ids;
            for (int i = 0; i < 77; ++i) ids.push_back(static_cast<TokenId>(rng.below(n)));
            ids.push_back(n - 1);
            for (const Packing packing : packings) {
                SCOPED_TRACE(name_of(isa) + " " + name_of(packing) + " k " + std::to_string(k));
                const Matrix full = pack_as(*exec, packing, w);
                const Matrix kept = full.gather_rows(*exec, ids);
                Table all(x.rows, n);
                Table some(x.rows, static_cast<int>(ids.size()));
                matmul(*exec, full, x.view(), all.view());
                matmul(*exec, kept, x.view(), some.view());
                for (int i = 0; i < some.cols; ++i) {
                    const TokenId id = ids[i];
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
    auto exec = make_thread_pool(2);
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
