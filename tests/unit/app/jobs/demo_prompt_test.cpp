#include <gtest/gtest.h>

#include "app/jobs/commands/run_config.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

/// The window's demo is also that of the start script, and the one that the README speaks of.
TEST(DemoPrompt, IsTheSameEverywhere) {
    for (const char* file : {"/run", "/README.md"})
        EXPECT_NE(testing::read_text(std::string(DS_SOURCE_DIR) + file).find(demo_prompt), std::string::npos)
            << file;
}

}  // namespace
}  // namespace draftscope
