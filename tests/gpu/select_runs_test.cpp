#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu/device_pair.h"

/// Selection from runs of columns (clusters of a head), compared with the reference device and its
/// definition.
namespace draftscope::testing {
namespace {

class SelectRuns : public DevicePair {};

TEST_P(SelectRuns, TopKOverRunsReturnsTokens) {
    const int rows = 5, columns = 700, runs = 6, k = 9;
    Rng rng(31);
    // Ties, so that the order of tokens decides, which differs from that of columns.
    std::vector<float> logits(static_cast<std::size_t>(rows * columns));
    for (float& value : logits) value = std::round(4 * static_cast<float>(rng.normal())) / 4;
    std::vector<std::int32_t> column_rows, row_tokens, ends, shifts;
    for (int c = 0; c < columns; ++c) column_rows.push_back(2 * c + 1);
    for (int r = 0; r < 2 * columns + 1; ++r) row_tokens.push_back(r * 37 % 1401);
    std::vector<std::vector<int>> own(static_cast<std::size_t>(rows));
    for (int r = 0; r < rows; ++r) {
        int column = 0, count = 0;
        for (int i = 0; i < runs; ++i) {
            // Empty runs in every position; the last row has five candidates, fewer than k.
            int size = rng.below(3) == 0 ? 0 : static_cast<int>(rng.below(100));
            if (r == rows - 1) size = i == 2 ? 5 : 0;
            column += static_cast<int>(rng.below(16));
            for (int p = 0; p < size; ++p) own[r].push_back(column + p);
            shifts.push_back(column - count);
            count += size;
            ends.push_back(count);
            column += size;
        }
        ASSERT_LE(column, columns);
    }
    const int support = *std::max_element(ends.begin(), ends.end());
    ASSERT_TRUE(kernels::can_topk(support, k));
    const Both<float> x(device(), twin(), logits), values(device(), twin(), std::size_t{rows * k}, 7.0f),
        sums(device(), twin(), std::size_t{rows}, 7.0f);
    const Both<std::int32_t> ids(device(), twin(), std::size_t{rows * k}, -7), d_ends(device(), twin(), ends),
        d_shifts(device(), twin(), shifts), d_rows(device(), twin(), column_rows),
        d_tokens(device(), twin(), row_tokens);
    const Both<std::byte> scratch(device(), twin(), kernels::topk_scratch_bytes(rows, support, k),
                                  std::byte{1});
    for (const bool on_twin : {false, true}) {
        kernels::TopKOp op;
        op.logits = x.on(on_twin);
        op.stride = columns;
        op.rows = rows;
        op.support = support;
        op.k = k;
        op.ids = ids.on(on_twin);
        op.values = values.on(on_twin);
        op.logsumexp = sums.on(on_twin);
        op.scratch = scratch.on(on_twin);
        op.run_ends = d_ends.on(on_twin);
        op.run_shifts = d_shifts.on(on_twin);
        op.runs = runs;
        op.column_rows = d_rows.on(on_twin);
        op.row_tokens = d_tokens.on(on_twin);
        (on_twin ? twin() : device()).topk(op);
    }
    const std::vector<std::int32_t> found = ids.read(false);
    EXPECT_EQ(found, ids.read(true));
    EXPECT_EQ(values.read(false), values.read(true));
    expect_close(sums.read(false), sums.read(true), 1e-5, "sums");
    for (int r = 0; r < rows; ++r) {
        std::vector<std::pair<float, std::int32_t>> expected;
        for (const int column : own[r])
            expected.emplace_back(-logits[r * columns + column], row_tokens[column_rows[column]]);
        std::sort(expected.begin(), expected.end());
        for (int i = 0; i < k; ++i) {
            const bool valid = i < static_cast<int>(expected.size());
            EXPECT_EQ(found[r * k + i], valid ? expected[i].second : -1) << r << " " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, SelectRuns, device_kinds_with_cpu(), param_name);

}  // namespace
}  // namespace draftscope::testing
