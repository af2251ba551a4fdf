#include <gtest/gtest.h>

#include "app/cli/job.h"

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

TEST(Progress, LinesFitTheTerminal) {
    EXPECT_EQ(progress_line(0.5, "prompt 1 of 4", 80), "[############............]  50% prompt 1 of 4");
    EXPECT_EQ(progress_line(0.5, "prompt 1 of 4", 34), " 50% prompt 1 of 4");
    EXPECT_EQ(progress_line(0.5, "prompt 1 of 4", 10), " 50% prom");
    EXPECT_EQ(progress_line(-1, "loading", 80), "loading ...");
    EXPECT_EQ(progress_line(-1, "\u00fc\u00fc\u00fc", 3), "\u00fc\u00fc") << "whole characters";
    EXPECT_EQ(progress_line(0, "x", 1), "");
}

}  // namespace
}  // namespace draftscope::cli
