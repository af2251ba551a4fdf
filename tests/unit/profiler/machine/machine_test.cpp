#include "profiler/machine/machine.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace draftscope {
namespace {

TEST(Machine, DescribesThisMachine) {
    const Machine machine = describe_machine();
    EXPECT_GE(machine.cores, 1);
    EXPECT_FALSE(machine.cpu_name.empty());
    EXPECT_GT(machine.memory_bytes, 1u << 20);
    EXPECT_FALSE(machine.os.empty());
    EXPECT_FALSE(machine.kernel.empty());
    EXPECT_EQ(machine.read_gb_per_s, 0);
}

TEST(Machine, EveryMissingCapabilityComesWithARemedy) {
    std::vector<std::string> names;
    for (const Capability& capability : describe_machine().capabilities) {
        names.push_back(capability.name);
        EXPECT_FALSE(capability.state.empty()) << capability.name;
        EXPECT_EQ(capability.remedy.empty(), capability.available) << capability.name;
    }
    EXPECT_EQ(names, (std::vector<std::string>{"NVIDIA driver", "CUPTI", "NVTX listener", "thread pinning"}));
}

TEST(Machine, JsonHoldsEveryFact) {
    Machine machine;
    machine.cpu_name = "C \"quoted\" \xff";
    machine.cores = 2;
    machine.capabilities = {{"CUPTI", false, "no library", "not found", "install it"}};
    const auto json = nlohmann::json::parse(to_json(machine));
    EXPECT_EQ(json.at("cores"), 2);
    EXPECT_TRUE(json.at("read_gb_per_s").is_null());
    EXPECT_EQ(json.at("capabilities").at(0).at("remedy"), "install it");
    for (const char* key : {"cpu", "isa", "memory_bytes", "os", "kernel", "tsc_invariant"})
        EXPECT_TRUE(json.contains(key)) << key;
}

TEST(Machine, BandwidthProbeMeasuresSomething) {
    EXPECT_GT(probe_read_bandwidth(1, 4), 0.0);
    EXPECT_GT(probe_read_bandwidth(3, 4), 0.0);
    EXPECT_GT(probe_read_bandwidth(0, 0), 0.0);  // clamped; must not crash
    EXPECT_GT(probe_scattered_bandwidth(2, 4, 640), 0.0);
    EXPECT_GT(probe_scattered_bandwidth(0, 0, 0), 0.0);
    const ProbedRate after = probe_scattered(2, 4, 640, 3);
    EXPECT_GT(after.median, 0.0);
    EXPECT_GE(after.best, after.median);
    const ProbedRate stream = probe_stream(2, 4, 3);
    EXPECT_GE(stream.best, stream.median);
    // A row longer than a thread's share of the memory.
    EXPECT_GT(probe_scattered_bandwidth(1, 1, 1 << 16), 0.0);
}

}  // namespace
}  // namespace draftscope
