#include "kernels/ops/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace draftscope::kernels {
namespace {

TEST(Float16, EveryF16RoundTrips) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = f16_to_float(half);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << bits;
        } else {
            EXPECT_EQ(float_to_f16(value), half) << bits;
        }
    }
}

/// Rounds to the nearer neighbour, and to the even one in the middle.
TEST(Float16, RoundsToNearest) {
    for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const float low = f16_to_float(static_cast<std::uint16_t>(bits)),
                    high = f16_to_float(static_cast<std::uint16_t>(bits + 1)), middle = (low + high) / 2;
        EXPECT_EQ(float_to_f16(middle), bits + (bits & 1u)) << bits;
        EXPECT_EQ(float_to_f16(std::nextafter(middle, low)), bits);
        EXPECT_EQ(float_to_f16(std::nextafter(middle, high)), bits + 1);
        EXPECT_EQ(float_to_f16(-std::nextafter(middle, high)), (bits + 1) | 0x8000u);
    }
}

TEST(Float16, KnownValues) {
    EXPECT_EQ(float_to_f16(1.0f), 0x3c00);
    EXPECT_EQ(float_to_f16(-2.5f), 0xc100);
    EXPECT_EQ(float_to_f16(65504.0f), 0x7bff);
    EXPECT_EQ(float_to_f16(65519.0f), 0x7bff);
    EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
    EXPECT_EQ(float_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
    EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
    EXPECT_EQ(float_to_f16(0x1p-24f), 0x0001);
    EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);
    EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
    EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Bf16, RoundsToNearestEven) {
    EXPECT_EQ(to_bf16(1.0f), 0x3f80);
    EXPECT_EQ(to_bf16(1.0f + 0x1p-8f), 0x3f80);  // halfway, to even
    EXPECT_EQ(to_bf16(1.0f + 0x3p-8f), 0x3f82);  // halfway, to even
    EXPECT_EQ(to_bf16(-2.5f), 0xc020);
    EXPECT_EQ(to_bf16(0x1.ffp0f), 0x4000);
    EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::nanf("")))));
}

}  // namespace
}  // namespace draftscope::kernels
