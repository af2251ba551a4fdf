#include "base/parse.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace draftscope::testing {
namespace {

TEST(Parse, NumbersAreTheWholeText) {
    EXPECT_EQ(parse_number<int>("-12"), -12);
    EXPECT_EQ(parse_number<std::uint32_t>("0072B2", 16), 0x72B2u);
    EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
    for (const char* text : {"", " 1", "1 ", "1x", "1.5", "99999999999"})
        EXPECT_FALSE(parse_number<int>(text)) << text;
}

TEST(Parse, ListsHaveANumberInEachPlace) {
    EXPECT_EQ(parse_numbers("2,15,27", ',', 0, 27), (std::vector{2, 15, 27}));
    EXPECT_EQ(parse_numbers("0.5", '/', 0.0, 1.0), (std::vector{0.5}));
    for (const char* text : {"", "2,", ",2", "2,,3", "2,28", "-1"})
        EXPECT_FALSE(parse_numbers(text, ',', 0, 27)) << text;
}

TEST(Parse, TrimsBlanks) {
    EXPECT_EQ(trim(" \ta b "), "a b");
    EXPECT_EQ(trim("  "), "");
}

}  // namespace
}  // namespace draftscope::testing
