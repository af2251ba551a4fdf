#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/support/fake_cuda/fake_gpu.h"

/// The benchmark of a GPU's ops on a GPU that is none: every op that it enqueues has valid operands, enough
/// scratch memory and a graph. Its times mean nothing.
namespace draftscope::testing {
namespace {

kernels::DeviceBenchOptions small() {
    kernels::DeviceBenchOptions options;
    options.vocab = 160;
    options.hidden = 64;
    options.rank = {16};
    options.trimmed = 100;
    options.gather = {40};
    options.k = 4;
    options.rows = {1, 3};
    options.product_rows = {1, 33};
    options.layer_mb = 0.01;
    options.stream_mb = 0.1;
    options.cold_mb = 0.05;
    options.clock_reads = 2;
    options.calls = 2;
    options.replays = 1;
    return options;
}

TEST(CudaBench, MeasuresEveryOpOfEveryModeInAGraph) {
    set_fake_gpu({.schedule = FakeSchedule::random});
    ASSERT_TRUE(load_fake_cublaslt());
    const auto report = bench_fake_cuda(small());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->largest_cluster, 16);
    EXPECT_EQ(report->library, "cuBLASLt 99.1.0");
    std::set<std::string> names;
    std::map<std::string, double> us;
    for (const kernels::DeviceMeasured& one : report->ops) {
        const std::string name = one.op + ", " + one.mode + ", " + std::to_string(one.rows);
        EXPECT_TRUE(names.insert(name).second) << name << " is measured twice";
        // The fake's kernels take a microsecond each, so a call has the same time among others as alone.
        EXPECT_NEAR(one.median_us, one.best_us, 1e-3) << name;
        EXPECT_NEAR(one.spread_us, 0, 1e-3) << name;
        auto [alone, is_new] = us.try_emplace(one.op + ", " + std::to_string(one.rows), one.median_us);
        EXPECT_GT(alone->second, 0) << name;
        EXPECT_NEAR(one.median_us, alone->second, 1e-3) << name;
    }
    for (const char* op : {"full head + top-k", "specvocab r=16 top 40", "indexed rows 40",
                           "cuBLASLt: logits of the full head"})
        for (const char* mode : {"cold", "warm", "in sequence"})
            for (const char* rows : {"1", "3"})
                EXPECT_TRUE(names.contains(std::string(op) + ", " + mode + ", " + rows))
                    << op << mode << rows;
    const FakeGpuUse use = fake_gpu_use();
    EXPECT_GT(use.graph_launches, static_cast<long>(report->ops.size()));
    EXPECT_EQ(use.allocations + use.pinned + use.streams + use.events + use.executable_graphs, 0);
    EXPECT_THAT(use.faults, ::testing::IsEmpty());
}

}  // namespace
}  // namespace draftscope::testing
