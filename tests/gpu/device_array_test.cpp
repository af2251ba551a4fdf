#include "kernels/device_array.h"

#include <gtest/gtest.h>

#include "tests/support/twin_device.h"

namespace draftscope::testing {
namespace {

using kernels::DeviceArray;
using kernels::DeviceStruct;

TEST(DeviceArray, GrowsToPowersOfTwoAndStaysWhileItIsLargeEnough) {
    TwinDevice backend;
    DeviceArray<std::int32_t> array;
    EXPECT_TRUE(array.empty());
    const std::vector<std::int32_t> five = {1, 2, 3, 4, 5};
    ASSERT_TRUE(array.upload(backend, five));
    EXPECT_EQ(array.bytes(), 32u);
    const std::int32_t* const before = array.data();
    ASSERT_TRUE(array.resize_at_least(backend, 8));
    EXPECT_EQ(array.data(), before);
    std::vector<std::int32_t> back(5);
    array.download(backend, back);
    ASSERT_TRUE(backend.synchronize().ok());
    EXPECT_EQ(back, five);
    DeviceArray<float> exact;
    ASSERT_TRUE(exact.upload_exact(backend, std::vector<float>(5, 1.0f)));
    EXPECT_EQ(exact.bytes(), 20u);
}

TEST(DeviceArray, IsEmptyWithoutMemory) {
    TwinDevice backend(64);
    DeviceArray<std::int32_t> array;
    ASSERT_TRUE(array.resize_at_least(backend, 16));
    EXPECT_FALSE(array.resize_at_least(backend, 17));
    EXPECT_TRUE(array.empty());
    EXPECT_TRUE(array.resize_at_least(backend, 0));
    EXPECT_FALSE(array.empty());
}

TEST(DeviceStruct, ReturnsTheAddressOfEachArray) {
    TwinDevice backend;
    DeviceStruct packed;
    ASSERT_TRUE(packed.begin(backend, 5));
    const std::vector<std::int32_t> three = {7, 8, 9};
    const std::int32_t* first = packed.add(three);
    const std::int32_t* second = packed.add(std::vector<int>{1, 2}, [](int value) { return 10 * value; });
    packed.upload(backend);
    EXPECT_EQ(second, first + 3);
    std::vector<std::int32_t> back(2);
    backend.download(back.data(), second, 2 * sizeof(std::int32_t));
    ASSERT_TRUE(backend.synchronize().ok());
    EXPECT_EQ(back, (std::vector<std::int32_t>{10, 20}));
}

}  // namespace
}  // namespace draftscope::testing
