#include <gtest/gtest.h>

#include "app/jobs/run/run_telemetry.h"
#include "base/clock.h"
#include "tests/unit/profiler/cupti/fake_cupti.h"

namespace draftscope {
namespace {

struct CollectedRecords : RecordSink {
    std::vector<Record> records;
    void push(Record record) override { records.push_back(std::move(record)); }
    template <typename T>
    std::vector<T> rows() const {
        std::vector<T> out;
        for (const Record& record : records)
            if (const auto* found = std::get_if<std::vector<T>>(&record))
                out.insert(out.end(), found->begin(), found->end());
        return out;
    }
};

StepRecord step(RowId id, TimeNs start, TimeNs end) {
    StepRecord out;
    out.step.id = id;
    out.step.run_id = 1;
    out.step.start_ns = start;
    out.step.end_ns = end;
    return out;
}

TEST(StepFinder, FindsStepsByLaunchTime) {
    StepFinder steps;
    EXPECT_FALSE(steps.find(5));
    steps.add(1, 10, 20);
    steps.add(2, 30, 40);
    EXPECT_EQ(steps.find(5), 0);
    EXPECT_EQ(steps.find(10), 1);
    EXPECT_EQ(steps.find(20), 1);
    EXPECT_EQ(steps.find(25), 0);
    EXPECT_EQ(steps.find(40), 2);
    EXPECT_FALSE(steps.find(41));  // the next step has not ended
    steps.finish();
    EXPECT_EQ(steps.find(41), 0);
}

TEST(GpuRowSink, JoinsOpsToStepsThatEndLater) {
    auto made = std::make_unique<FakeCupti>();
    FakeCupti& fake = *made;
    GpuSession session(std::move(made), {.flush_every = 0});
    ASSERT_EQ(session.open(Tier::t2).state, CuptiState::ready);
    CollectedRecords collected;
    RowIds ids;
    const TimeNs start = monotonic_ns();
    GpuRowSink sink(collected, session, ids, 1, start);

    PhaseRecorder recorder;
    GpuPhaseStack stack;
    recorder.set_range_sink(&stack);
    const auto launch = [&](std::uint32_t correlation) {
        PhaseScope scope(recorder, Phase::verify);
        fake.listener->call_entered(correlation, "cudaLaunchKernel");
        fake.listener->call_left(correlation);
        GpuActivity kernel;
        kernel.mangled = "k";
        kernel.correlation = correlation;
        kernel.start_ns = monotonic_ns();
        kernel.end_ns = kernel.start_ns + 5;
        kernel.grid[0] = 2;
        kernel.block[0] = 64;
        fake.write(kernel);
    };
    const TimeNs first_start = monotonic_ns() - start;
    launch(1);
    fake.hand_over();
    const TimeNs first_end = monotonic_ns() - start;
    sink.push(step(11, first_start, first_end));
    const TimeNs second_start = monotonic_ns() - start;
    launch(2);
    fake.hand_over();
    sink.push(CounterRow{1, 5, "x", 1.0});
    EXPECT_EQ(collected.rows<GpuOpRow>().size(), 1u);
    sink.push(step(12, second_start, monotonic_ns() - start));
    launch(3);  // after the last step
    GpuActivity lost;
    fake.write(lost);
    sink.finish();

    const auto ops = collected.rows<GpuOpRow>();
    ASSERT_EQ(ops.size(), 3u);
    EXPECT_EQ(ops[0].step_id, 11);
    EXPECT_EQ(ops[1].step_id, 12);
    EXPECT_EQ(ops[2].step_id, 0);
    EXPECT_EQ(ops[0].id, 1);
    EXPECT_EQ(ops[2].id, 3);
    EXPECT_EQ(ops[1].phase_id, static_cast<int>(Phase::verify));
    EXPECT_EQ(ops[1].grid, "2,0,0");
    EXPECT_GE(ops[0].start_ns, first_start);
    const auto calls = collected.rows<NvtxRangeRow>();
    ASSERT_EQ(calls.size(), 3u);
    EXPECT_EQ(calls[0].domain, cuda_call_domain);
    EXPECT_EQ(calls[2].payload, 3);
    const auto* loss = std::get_if<LossRow>(&collected.records.back());
    ASSERT_NE(loss, nullptr);
    EXPECT_EQ(loss->kind, "gpu_zero_timestamp");
    EXPECT_EQ(loss->count, 1);
}

TEST(OpenTier, NamesTheFallbackTier) {
    auto made = std::make_unique<FakeCupti>();
    GpuSession session(std::move(made), {.flush_every = 0});
    const TierChoice cpu = open_tier(Tier::t2, false, session);
    EXPECT_EQ(cpu.used, Tier::t0);
    EXPECT_NE(cpu.why.find("CPU"), std::string::npos);
    EXPECT_EQ(session.tier(), Tier::t0);  // nothing was opened
    EXPECT_TRUE(open_tier(Tier::t2, true, session).why.empty());
    EXPECT_TRUE(open_tier(Tier::t0, true, session).why.empty());

    auto held = std::make_unique<FakeCupti>();
    held->subscribe_answer = cupti_refusal(39, "busy", "Nsight Systems", "subscribing");
    GpuSession taken(std::move(held));
    const TierChoice refused = open_tier(Tier::t2, true, taken);
    EXPECT_EQ(refused.used, Tier::t0);
    EXPECT_NE(refused.why.find("Nsight Systems"), std::string::npos);
}

}  // namespace
}  // namespace draftscope
