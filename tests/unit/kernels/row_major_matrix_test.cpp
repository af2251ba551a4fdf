#include "kernels/row_major_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "kernels/cpu/matmul/fused.h"
#include "kernels/host_rows.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

constexpr int n = 101;

class RowMajorMatrixTest : public ::testing::TestWithParam<std::tuple<Packing, int>> {
  protected:
    RowMajorMatrixTest() {
        Rng rng(5);
        Table weights(n, k());
        for (float& v : weights.data) v = static_cast<float>(rng.normal());
        x_.resize(7 * k());
        for (float& v : x_) v = static_cast<float>(rng.normal());
        matrix_ = pack_as(*exec_, std::get<0>(GetParam()), weights);
    }
    static int k() { return std::get<1>(GetParam()); }
    Rows<const float> x(int rows) const { return {x_.data(), rows, k()}; }

    std::unique_ptr<ThreadPool> exec_ = make_thread_pool(2);
    std::vector<float> x_;
    Matrix matrix_;
};

TEST_P(RowMajorMatrixTest, GatheredRowsMatchTheWholeMatrix) {
    const RowMajorMatrix store = RowMajorMatrix::make(*exec_, matrix_);
    std::vector<float> all(7 * n);
    matmul(*exec_, matrix_, x(7), Rows<float>(all.data(), 7, n));
    GatheredMatrix packed;
    Rng rng(9);
    // Growing and shrinking, with repeats, and one row more than whole blocks hold.
    for (const int count : {1, 16, 17, 60, 3, 101, 200, 33}) {
        std::vector<TokenId> ids;
        for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(rng.below(n)));
        packed.fill(*exec_, store, ids);
        ASSERT_EQ(packed.n(), count);
        ASSERT_EQ(packed.matrix().bytes(), matrix_.gather_rows(*exec_, ids).bytes());
        std::vector<float> found(static_cast<std::size_t>(7 * count));
        matmul(*exec_, packed.matrix(), x(7), Rows<float>(found.data(), 7, count));
        for (int r = 0; r < 7; ++r)
            for (int i = 0; i < count; ++i) ASSERT_EQ(found[r * count + i], all[r * n + ids[i]]);
        std::vector<float> row(static_cast<std::size_t>(k())), same(row);
        packed.matrix().unpack_row(count - 1, row);
        matrix_.unpack_row(ids.back(), same);
        EXPECT_EQ(row, same);
    }
}

TEST_P(RowMajorMatrixTest, IndexedRowsMatchTheWholeMatrix) {
    constexpr int max_rows = 40;  // rows of x: more than two tiles, and not a multiple of a tile
    Rng rng(11);
    std::vector<float> wide(static_cast<std::size_t>(max_rows * k()));
    for (float& v : wide) v = static_cast<float>(rng.normal());
    for (const Isa isa : isas()) {
        for (const int threads : {1, 2}) {
            const std::unique_ptr<ThreadPool> exec = make_thread_pool(threads, isa);
            const RowMajorMatrix store = RowMajorMatrix::make(*exec, matrix_);
            for (const int rows : {1, 2, 3, 7, 9, max_rows}) {
                const Rows<const float> in(wide.data(), rows, k());
                std::vector<float> all(static_cast<std::size_t>(rows * n));
                matmul(*exec, matrix_, in, Rows<float>(all.data(), rows, n));
                for (const int count : {1, 16, 17, 63, 64, 65, 101, 333}) {
                    std::vector<TokenId> ids;
                    for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(rng.below(n)));
                    std::vector<float> found(static_cast<std::size_t>(rows * count), -7.0f);
                    matmul_rows(*exec, store, ids, in, Rows<float>(found.data(), rows, count));
                    for (int r = 0; r < rows; ++r)
                        for (int i = 0; i < count; ++i)
                            ASSERT_EQ(found[r * count + i], all[r * n + ids[i]])
                                << name_of(isa) << " " << threads << " threads, " << rows << " rows, place "
                                << i << " of " << count;
                }
            }
        }
    }
}

TEST_P(RowMajorMatrixTest, SelectedBlocksMatchTheWholeMatrix) {
    std::vector<float> all(7 * n);
    matmul(*exec_, matrix_, x(7), Rows<float>(all.data(), 7, n));
    for (const std::vector<int>& blocks :
         {std::vector<int>{0}, {6}, {1, 2, 3}, {0, 2, 3, 6}, {0, 1, 2, 3, 4, 5, 6}, {}})
        for (const int rows : {1, 3, 7}) {
            const int columns = 16 * static_cast<int>(blocks.size());
            std::vector<float> found(static_cast<std::size_t>(rows * columns), -7.0f);
            matmul_blocks(*exec_, matrix_, blocks, x(rows), Rows<float>(found.data(), rows, columns));
            for (int r = 0; r < rows; ++r)
                for (int c = 0; c < columns; ++c) {
                    const int output = 16 * blocks[c / 16] + c % 16;
                    if (output >= n) continue;  // padding may hold anything
                    ASSERT_EQ(found[r * columns + c], all[r * n + output]);
                }
        }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RowMajorMatrixTest,
                         ::testing::Combine(::testing::ValuesIn(packings), ::testing::Values(64, 97, 576)),
                         [](const auto& p) {
                             const Packing packing = std::get<0>(p.param);
                             return name_of(packing.precision) + (packing.symmetric ? "_symmetric_" : "_") +
                                    std::to_string(std::get<1>(p.param));
                         });

}  // namespace
}  // namespace draftscope::kernels
