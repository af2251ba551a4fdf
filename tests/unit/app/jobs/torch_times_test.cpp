#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "app/jobs/kernels/kernels_job.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

TEST(TorchTimes, ParsesTheDocument) {
    const auto peer = parse_torch(R"({"torch": "2.9", "device": "GPU", "ops": [)"
                                  R"({"op": "full head", "rows": 1, "median_us": 300.5, "best_us": 290},)"
                                  R"({"op": "full head", "rows": 10, "median_us": 310, "best_us": 300}]})");
    ASSERT_TRUE(is_ok(peer));
    EXPECT_EQ(peer->version, "2.9");
    kernels::DeviceMeasured ours;
    ours.op = "full head in one pass";
    ours.mode = "cold";
    ours.rows = 10;
    ASSERT_NE(peer->find(ours), nullptr);
    EXPECT_EQ(peer->find(ours)->median_us, 310);
    ours.rows = 4;
    EXPECT_EQ(peer->find(ours), nullptr);
    EXPECT_EQ(peer->find({}), nullptr);
    ours.rows = 10;
    ours.op = "full headless";
    EXPECT_EQ(peer->find(ours), nullptr);
    ours.op = "full head";
    EXPECT_NE(peer->find(ours), nullptr);
    ours.mode = "warm";
    EXPECT_EQ(peer->find(ours), nullptr);
    for (const char* text : {"", "[]", "{", R"({"torch": "2", "device": "G", "ops": [{"op": 1}]})",
                             R"({"torch": 2, "device": "G", "ops": []})"})
        EXPECT_FALSE(parse_torch(text).ok()) << text;
}

/// The interpreter can be any program; errors are reported before the timing.
TEST(TorchTimes, StartsTheInterpreter) {
    const testing::ScratchFolder folder;
    const std::string python = folder.file("python");
    const auto write = [&](const std::string& script) {
        std::ofstream(python) << script;
        fs::permissions(python, fs::perms::owner_all);
    };
    write("#!/bin/sh\nexit 3\n");
    const Status refused = check_torch(python);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(python), std::string::npos);
    const Status absent = check_torch(folder.file("nothing"));
    ASSERT_FALSE(absent.ok());
    EXPECT_NE(absent.error().message.find("cannot be started"), std::string::npos);
    write("#!/bin/sh\necho \"{\\\"torch\\\": \\\"t\\\", \\\"device\\\": \\\"$9\\\", \\\"ops\\\": []}\"\n");
    EXPECT_TRUE(check_torch(python).ok());
    kernels::DeviceBenchOptions options;
    options.trimmed = 77;
    const auto timed = require(time_torch(python, options));
    EXPECT_EQ(timed.device, "77");  // the shapes are ours
}

}  // namespace
}  // namespace draftscope
