#include "capture/token_text.h"

#include <gtest/gtest.h>

#include "base/format_count.h"

namespace draftscope {
namespace {

TEST(TokenText, EscapesControlCharacters) {
    EXPECT_EQ(format_token(" a\n\tb\r"), " a\\n\\tb\\r");
    EXPECT_EQ(format_token("\x1b"), "\\x1b");
    EXPECT_EQ(format_token("\xC3\xA9\xE4\xBD\xA0"), "\xC3\xA9\xE4\xBD\xA0");
    EXPECT_EQ(format_token(""), "");
}

TEST(TokenText, ShowsInvalidBytesInHexadecimal) {
    EXPECT_EQ(format_bytes("\xF0\x9F\x99\x82"), "<F0 9F 99 82>");
    EXPECT_EQ(format_token("\xF0\x9F"), "<F0 9F>");
    EXPECT_EQ(format_token(" \xF0\x9F"), " <F0 9F>");
    EXPECT_EQ(format_token("\x99x\xC3"), "<99>x<C3>");
}

TEST(TokenText, LabelsQuoteCharactersOnly) {
    EXPECT_EQ(quote_token(" a\n\tb"), "\" a\\n\\tb\"");
    EXPECT_EQ(quote_token("\xF0\x9F"), "<F0 9F>");
    EXPECT_EQ(quote_token(" \xF0\x9F"), "\" <F0 9F>\"");
    EXPECT_EQ(quote_token("<F0>"), "\"<F0>\"") << "text that looks like bytes is quoted";
    EXPECT_EQ(quote_token("abcdefghijklmnopqrstuvwxyz"), "\"abcdefghijklmnopqrstuvwx...\"");
    EXPECT_EQ(quote_token("\xC3\xA9"), "\"\xC3\xA9\"");
}

TEST(TokenText, MissingGlyphsBecomeCodePoints) {
    const auto latin = [](char32_t code) { return code < 0x180; };
    EXPECT_EQ(replace_missing_glyphs("a\xC3\xA9\xF0\x9F\x99\x82!", latin), "a\xC3\xA9<U+1F642>!");
    EXPECT_EQ(replace_missing_glyphs("\xE4\xBD\xA0", latin), "<U+4F60>");
    EXPECT_EQ(replace_missing_glyphs("x\xFFy", latin), "x<FF>y");
}

TEST(FormatCount, OneIsSingular) {
    EXPECT_EQ(format_count(1, "draft token"), "1 draft token");
    EXPECT_EQ(format_count(0, "round"), "0 rounds");
    EXPECT_EQ(format_count(12, "thread"), "12 threads");
}

}  // namespace
}  // namespace draftscope
