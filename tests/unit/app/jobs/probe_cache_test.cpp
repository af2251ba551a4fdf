#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/jobs/machine/capabilities.h"
#include "capture/run_setting.h"
#include "profiler/machine/machine.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

TEST(ProbeCache, StoresBandwidthByCpu) {
    const testing::ScratchFolder folder;
    setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
    EXPECT_EQ(load_probe("cpu", 2), ReadBandwidth());
    save_probe("cpu", {{1, {7.5, 3.5}}, {2, {12.25, 0}}});
    EXPECT_EQ(load_probe("cpu", 2), (ReadBandwidth{12.25, 0}));
    EXPECT_EQ(load_probe("cpu", 1), (ReadBandwidth{7.5, 3.5}));
    EXPECT_EQ(load_probe("cpu", 3), ReadBandwidth());
    EXPECT_EQ(load_probe("another cpu", 2), ReadBandwidth());
    for (const char* broken :
         {"", "{", "[]", R"({"cpu": 3})", R"({"cpu": "cpu", "read_gb_per_s": {"2": "x"}})"}) {
        std::ofstream(folder.path() + "/draftscope/bandwidth.json") << broken;
        EXPECT_EQ(load_probe("cpu", 2), ReadBandwidth()) << broken;
    }
    unsetenv("XDG_CACHE_HOME");
}

TEST(ProbeCache, ReadsTheProbeOfARunsMachine) {
    Machine machine;
    RunRow run;
    run.machine_json = to_json(machine);
    EXPECT_FALSE(probed_gb_per_s(run));
    machine.read_gb_per_s = 18.5;
    run.machine_json = to_json(machine);
    ASSERT_TRUE(probed_gb_per_s(run));
    EXPECT_EQ(*probed_gb_per_s(run), 18.5);
    EXPECT_FALSE(probed_scattered_gb_per_s(run));
    machine.cached_read_gb_per_s = 40;
    machine.scattered_read_gb_per_s = 9.5;
    run.machine_json = to_json(machine);
    EXPECT_EQ(*probed_gb_per_s(run), 18.5);
    EXPECT_EQ(*probed_scattered_gb_per_s(run), 9.5);
}

}  // namespace
}  // namespace draftscope
