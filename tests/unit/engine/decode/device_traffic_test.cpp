#include <gtest/gtest.h>

#include "tests/support/device_rig.h"
#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/round_fixture.h"

/// What a step asks of a GPU besides kernels, counted by the fake GPU.
namespace draftscope::testing {
namespace {

struct StepTraffic {
    StepRecord record;
    long marks, uploads, downloads, switches;
};

/// Notes what the GPU did in each step.
class TrafficSink final : public RecordSink {
  public:
    void push(Record record) override {
        const FakeGpuUse now = fake_gpu_use();
        if (auto* step = std::get_if<StepRecord>(&record))
            steps.push_back({std::move(*step), now.marks - before_.marks, now.uploads - before_.uploads,
                             now.downloads - before_.downloads, now.switches - before_.switches});
        before_ = now;
    }
    std::vector<StepTraffic> steps;

  private:
    FakeGpuUse before_;
};

class DeviceTraffic : public ::testing::Test {
  protected:
    DeviceTraffic() { set_fake_gpu({}); }
    std::vector<StepTraffic> decode(const DecodeCase& setting) {
        TwinExec on(*open_fake_cuda());
        RoundFixture rounds(*on.exec, kernels::Precision::bf16);
        TrafficSink sink;
        (void)rounds.engine().decode(rounds.resolve(setting), {{5, 1, 2, 8}}, &sink);
        return std::move(sink.steps);
    }
};

TEST_F(DeviceTraffic, OnlySampledStepsRecordEvents) {
    const auto steps = decode({.drafter = "eagle3", .tree = "chain=2", .max_new = 12, .span_interval = 3});
    int sampled = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        SCOPED_TRACE(i);
        const StepRecord& step = steps[i].record;
        // The first two are warm-up.
        EXPECT_EQ(step.step.sampled, i > 2 && i % 3 == 0);
        EXPECT_EQ(step.spans.empty(), !step.step.sampled);
        EXPECT_EQ(step.rounds[0].head_evals[0].head_ns > 0, step.step.sampled);
        EXPECT_GT(step.rounds[0].round.committed, 0);
        if (!step.step.sampled) {
            EXPECT_EQ(steps[i].marks, 0);
            continue;
        }
        ++sampled;
        // The step's start, and both ends of each span except that of the commit, which the host times.
        EXPECT_EQ(steps[i].marks, 2 * static_cast<long>(step.spans.size()) - 1);
    }
    EXPECT_GE(sampled, 2);
}

/// Copies between dependent kernels make a GPU change to its copy engine and back, several microseconds each.
TEST_F(DeviceTraffic, CopiesComeBeforeTheFirstKernelAndAfterTheLast) {
    for (const char* tree : {"chain=2", "chain=4", "depth=3,topk=2,nodes=6"}) {
        SCOPED_TRACE(tree);
        const auto steps = decode({.drafter = "eagle3", .tree = tree, .max_new = 5});
        ASSERT_GE(steps.size(), 2u);
        for (std::size_t i = 1; i < steps.size(); ++i) {  // the first one follows the prefill
            EXPECT_EQ(steps[i].uploads, 3);
            EXPECT_EQ(steps[i].downloads, 4);  // one has the candidates
            EXPECT_EQ(steps[i].switches, 2);
        }
    }
}

}  // namespace
}  // namespace draftscope::testing
