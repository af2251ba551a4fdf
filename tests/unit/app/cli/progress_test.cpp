#include "app/cli/progress.h"

#include <gtest/gtest.h>

namespace draftscope::cli {
namespace {

std::string printed(bool wanted, TimeNs interval) {
    ::testing::internal::CaptureStderr();
    ProgressBar bar(wanted, interval);
    bar.update(0.25, "prompt 1 of 4");
    bar.update(-1, "loading");
    return ::testing::internal::GetCapturedStderr();
}

TEST(Progress, WritesLinesWithoutATerminal) {
    EXPECT_EQ(printed(true, 0), " 25% prompt 1 of 4\nloading\n");
    EXPECT_EQ(printed(true, 60 * ns_per_s), "");
    EXPECT_EQ(printed(false, 0), "");
}

}  // namespace
}  // namespace draftscope::cli
