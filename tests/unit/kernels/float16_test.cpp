#include "kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace draftscope::kernels {
namespace {

TEST(Halves, EveryF16ComesBack) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = float_of_f16(half);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(float_of_f16(f16_of(value)))) << bits;
        } else {
            EXPECT_EQ(f16_of(value), half) << bits;
        }
    }
}

/// Rounds to the nearer neighbour, and to the even one in the middle.
TEST(Halves, RoundsToTheNearest) {
    for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const float low = float_of_f16(static_cast<std::uint16_t>(bits)),
                    high = float_of_f16(static_cast<std::uint16_t>(bits + 1)), middle = (low + high) / 2;
        EXPECT_EQ(f16_of(middle), bits + (bits & 1u)) << bits;
        EXPECT_EQ(f16_of(std::nextafter(middle, low)), bits);
        EXPECT_EQ(f16_of(std::nextafter(middle, high)), bits + 1);
        EXPECT_EQ(f16_of(-std::nextafter(middle, high)), (bits + 1) | 0x8000u);
    }
}

TEST(Halves, KnownValues) {
    EXPECT_EQ(f16_of(1.0f), 0x3c00);
    EXPECT_EQ(f16_of(-2.5f), 0xc100);
    EXPECT_EQ(f16_of(65504.0f), 0x7bff);
    EXPECT_EQ(f16_of(65519.0f), 0x7bff);
    EXPECT_EQ(f16_of(65520.0f), 0x7c00);
    EXPECT_EQ(f16_of(std::numeric_limits<float>::infinity()), 0x7c00);
    EXPECT_EQ(f16_of(-1e30f), 0xfc00);
    EXPECT_EQ(f16_of(0x1p-24f), 0x0001);
    EXPECT_EQ(f16_of(0x1p-25f), 0x0000);
    EXPECT_EQ(f16_of(-0.0f), 0x8000);
    EXPECT_EQ(f16_of(std::numeric_limits<float>::denorm_min()), 0x0000);
}

}  // namespace
}  // namespace draftscope::kernels
