#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "app/cli/head_tables.h"
#include "engine/heads/registry.h"

namespace draftscope {
namespace {

TEST(HeadHelp, ListsHeadsParametersAndOurDefaults) {
    const std::string text = cli::head_help();
    for (const HeadInfo& info : head_registry()) {
        EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("\n  {} ", info.id)));
        for (const HeadParam& param : info.params)
            EXPECT_THAT(text, ::testing::HasSubstr(fmt::format(" {}=", param.name))) << info.id;
    }
    EXPECT_THAT(text, ::testing::HasSubstr("source=both|ctx|ext"));
    EXPECT_THAT(text, ::testing::HasSubstr("[our default]"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace draftscope
