#include <gtest/gtest.h>

#include "tests/gpu/device_pair.h"

namespace draftscope::testing {
namespace {

using kernels::half_t;
using kernels::padded_columns;

class RouterOps : public DevicePair {};

/// The selected columns equal those of product and top set on the same device, even if one stripe has more of
/// them than it keeps.
TEST_P(RouterOps, MatchesMatmulThenTopKSet) {
    for (const auto& [n, k, rank] : {std::tuple(1, 1, 64),
                                     {13, 4, 64},
                                     {300, 100, 70},
                                     {1031, 64, 64},
                                     {2600, 200, 64},
                                     {49152, 2048, 72},
                                     {128256, 2048, 512},
                                     {201088, 2048, 360}})
        for (const int rows : {1, 9, 17}) {
            if (too_large(std::int64_t{n} * rank * rows * 2)) continue;
            ASSERT_TRUE(kernels::can_route(n, k));
            for (const bool lumped : {false, true}) {
                if (lumped && rows == 9) continue;
                std::vector<half_t> weights = random_halves(n, rank, 1);
                const int stride = padded_columns(rank), stripes = kernels::router_stripes(n);
                // Ties; if `lumped`, one stripe holds the best columns of every row.
                for (int c = 0; c < n; ++c)
                    for (int i = 0; i < rank; ++i) {
                        half_t& value = weights[std::int64_t{c} * stride + i];
                        if (c % 5 == 1) value = weights[std::int64_t{c - 1} * stride + i];
                        if (lumped && c % stripes == 0) value = to_half(i == 0 ? 50.0f : 0.0f);
                    }
                std::vector<half_t> inputs = random_halves(rows, rank, 2);
                for (int r = 0; r < rows; ++r) inputs[r * stride] = to_half(1.0f);
                const Both<half_t> w(device(), twin(), weights), x(device(), twin(), inputs);
                const Both<std::int32_t> found(device(), twin(), rows * k, -7),
                    expected(device(), twin(), rows * k, -7);
                const Both<std::byte> scratch(device(), twin(), kernels::router_scratch_bytes(rows, n, k),
                                              std::byte{1});
                const Both<float> y(device(), twin(), std::int64_t{rows} * n, -1.0f);
                for (const bool on_twin : {false, true}) {
                    kernels::Backend& on = on_twin ? twin() : device();
                    on.matmul_topk_set({{w.on(on_twin), n, rank, stride},
                                        x.on(on_twin),
                                        rows,
                                        k,
                                        found.on(on_twin),
                                        scratch.on(on_twin)});
                    kernels::MatmulOp op;
                    op.weights = {w.on(on_twin), n, rank, stride};
                    op.x = x.on(on_twin);
                    op.rows = rows;
                    op.y = y.on(on_twin);
                    op.y_stride = n;
                    on.matmul(op);
                    on.topk_set({y.on(on_twin), n, rows, n, k, expected.on(on_twin)});
                }
                EXPECT_EQ(found.read(false), expected.read(false)) << n << " " << k << " " << rows;
                EXPECT_EQ(found.read(true), expected.read(true));
            }
        }
}

INSTANTIATE_TEST_SUITE_P(Devices, RouterOps, device_kinds(), param_name);

}  // namespace
}  // namespace draftscope::testing
