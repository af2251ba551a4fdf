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

TEST(SortedPlaces, NumbersSortAsNumbersAndEqualKeysStay) {
    const std::vector<SortKey> numbers = {10, 9.5, SortKey(std::string()), 100, 9.5};
    EXPECT_EQ(sorted_places(numbers, false), (std::vector<std::size_t>{1, 4, 0, 3, 2}));
    EXPECT_EQ(sorted_places(numbers, true), (std::vector<std::size_t>{3, 0, 1, 4, 2}))
        << "an empty cell is last in both directions";
    const std::vector<SortKey> texts = {std::string("b"), std::string("a"), std::optional<double>(),
                                        std::string("c")};
    EXPECT_EQ(sorted_places(texts, false), (std::vector<std::size_t>{1, 0, 3, 2}));
    EXPECT_TRUE(sorted_places({}, true).empty());
}

}  // namespace
}  // namespace draftscope
