#include "app/gui/models/copied_table.h"

#include <gtest/gtest.h>

namespace draftscope {
namespace {

TEST(CopiedTable, CellsAreSeparatedByTabs) {
    EXPECT_EQ(
        to_tab_separated("26 steps; 2 excluded\n| phase | n | total ms\n| head | 26 |  21.4\n\nlegend\n"),
        "phase\tn\ttotal ms\nhead\t26\t21.4\n");
    EXPECT_EQ(to_tab_separated("| a ||b"), "a\t\tb\n") << "an empty cell stays";
    EXPECT_EQ(to_tab_separated("no table\n"), "");
    EXPECT_EQ(to_tab_separated(""), "");
}

TEST(CopiedTable, CsvQuotesWhatItMust) {
    EXPECT_EQ(to_csv("phase\tn\nsays \"a, b\"\t\n"), "phase,n\r\n\"says \"\"a, b\"\"\",\r\n");
    EXPECT_EQ(to_csv(""), "");
}

}  // namespace
}  // namespace draftscope
