#include "app/gui/models/kernels.h"

#include <gtest/gtest.h>

namespace draftscope {
namespace {

std::vector<KernelRow> measured() {
    return {{"head", "int8", 1, 1000, 900, 30e6},      {"low-rank r=72", "int8", 1, 150, 140, 4e6},
            {"gather 2048", "int8", 0, 80, 70, 2.6e6}, {"head", "bf16", 1, 2000, 1900, 60e6},
            {"head", "int8", 4, 1500, 1400, 30e6},     {"low-rank r=72", "int8", 4, 300, 280, 4e6},
            {"top-k k=10", "f32", 4, 20, 18, 0.8e6}};
}

const KernelLine& line(const KernelTable& table, const std::string& op, const std::string& precision,
                       int rows) {
    for (const KernelLine& one : table.lines)
        if (one.row.op == op && one.row.precision == precision && one.row.rows == rows) return one;
    throw std::out_of_range(op);
}

TEST(KernelsModel, RelatesOpsToProbeHeadAndOneRow) {
    const KernelTable table = kernel_table(measured(), 40.0, 0, "");
    EXPECT_EQ(table.row_counts, (std::vector<int>{0, 1, 4}));
    EXPECT_EQ(table.precisions, (std::vector<std::string>{"", "int8", "bf16", "f32"}));
    ASSERT_EQ(table.lines.size(), 7u);
    const KernelLine& low_rank = line(table, "low-rank r=72", "int8", 4);
    EXPECT_DOUBLE_EQ(low_rank.ratio_to_head.value(), 0.2);  // relative to the head at the same M
    EXPECT_DOUBLE_EQ(low_rank.ratio_to_one.value(), 2.0);
    EXPECT_DOUBLE_EQ(line(table, "head", "int8", 1).gb_per_s, 30.0);
    EXPECT_DOUBLE_EQ(line(table, "head", "int8", 1).share, 0.75);
    EXPECT_FALSE(line(table, "head", "int8", 4).ratio_to_head.has_value());
    EXPECT_FALSE(line(table, "head", "int8", 1).ratio_to_one.has_value());
    EXPECT_FALSE(line(table, "top-k k=10", "f32", 4).ratio_to_head.has_value());  // no f32 head was measured
    EXPECT_FALSE(line(table, "gather 2048", "int8", 0).ratio_to_one.has_value());
}

TEST(KernelsModel, ChoosesRowsAndPrecision) {
    const KernelTable one = kernel_table(measured(), 40.0, 4, "int8");
    // Ops without M are always included.
    ASSERT_EQ(one.lines.size(), 3u);
    EXPECT_EQ(one.row_counts.size(), 3u);
    EXPECT_EQ(line(one, "gather 2048", "int8", 0).row.bytes, 2.6e6);
    EXPECT_DOUBLE_EQ(line(one, "head", "int8", 4).ratio_to_one.value(), 1.5);
    EXPECT_TRUE(kernel_table({}, 0, 0, "").lines.empty());
    EXPECT_EQ(kernel_table(measured(), 0, 1, "bf16").lines.front().share, 0);
}

}  // namespace
}  // namespace draftscope
