#include "app/jobs/run/gpu_row_sinks.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/unit/profiler/cupti/fake_counters.h"
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
        kernel.name = "k";
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

TEST(CounterRowSink, SumsCountersByStepAndPhase) {
    auto made = std::make_unique<FakeCounters>();
    FakeCounters& fake = *made;
    CounterSession session(std::move(made), 8);
    ASSERT_EQ(session.begin().state, CuptiState::ready);
    CollectedRecords collected;
    const TimeNs start = monotonic_ns();
    CounterRowSink sink(collected, session, 1, start);
    PhaseRecorder recorder;
    recorder.set_range_sink(&session);
    { const PhaseScope prefill(recorder, Phase::prefill); }
    // Two head calls and a verification per step: five ranges are read at the end of the second step.
    for (RowId id = 1; id <= 3; ++id) {
        const TimeNs begin = monotonic_ns() - start;
        for (const Phase phase : {Phase::head, Phase::verify, Phase::head})
            const PhaseScope scope(recorder, phase);
        sink.push(step(id, begin, monotonic_ns() - start));
    }
    { const PhaseScope outside(recorder, Phase::prefill); }
    sink.finish();
    const auto rows = collected.rows<GpuCounterRow>();
    ASSERT_EQ(rows.size(), 3u * 2 * 3);
    // Range 0 was the prefill; range i counts 10 i, 10 i + 1 and 10 i + 2.
    EXPECT_EQ(rows[0].step_id, 1);
    EXPECT_EQ(rows[0].phase_id, static_cast<int>(Phase::head));
    EXPECT_EQ(rows[0].name, "dram__bytes_read.sum");
    EXPECT_EQ(rows[0].value, 10 + 30);
    EXPECT_EQ(rows[1].value, 11 + 31);
    EXPECT_EQ(rows[3].phase_id, static_cast<int>(Phase::verify));
    EXPECT_EQ(rows[3].value, 20);
    EXPECT_EQ(rows.back().step_id, 3);
    EXPECT_FALSE(fake.misused);
    for (const Record& record : collected.records) EXPECT_FALSE(std::holds_alternative<LossRow>(record));
}

TEST(CounterRowSink, RecordsFailuresAsLosses) {
    auto made = std::make_unique<FakeCounters>();
    made->stop_answer = 7;
    CounterSession session(std::move(made));
    ASSERT_EQ(session.begin().state, CuptiState::ready);
    CollectedRecords collected;
    const TimeNs start = monotonic_ns();
    CounterRowSink sink(collected, session, 1, start);
    PhaseRecorder recorder;
    recorder.set_range_sink(&session);
    { const PhaseScope head(recorder, Phase::head); }
    sink.push(step(1, 0, monotonic_ns() - start));
    sink.finish();
    std::vector<std::string> kinds;
    std::string note;
    for (const Record& record : collected.records) {
        if (const auto* loss = std::get_if<LossRow>(&record)) kinds.push_back(loss->kind);
        if (const auto* text = std::get_if<NoteRow>(&record)) note = text->text;
    }
    EXPECT_EQ(kinds, (std::vector<std::string>{"gpu_counter_dropped", "gpu_counters_ended"}));
    EXPECT_NE(note.find("code 7"), std::string::npos);
}

TEST(OpenTier, CountersNeedPermissionAndSupport) {
    auto made = std::make_unique<FakeCupti>();
    GpuSession session(std::move(made), {.flush_every = 0});
    TierChoice choice =
        open_tier(Tier::t3, true, session, probe_gpu_counters("RmProfilingAdminOnly: 0\n", "CapEff: 0\n"));
    EXPECT_EQ(choice.used, Tier::t3);
    EXPECT_EQ(choice.why, "");
    EXPECT_EQ(session.tier(), Tier::t0) << "only the counters are recorded";
    EXPECT_NE(begin_counters(std::make_unique<FakeCounters>(), choice), nullptr);
    EXPECT_EQ(choice.used, Tier::t3);
    auto refusing = std::make_unique<FakeCounters>();
    refusing->open_answer = cupti_refusal(33, "virtual device", "", "enabling the range profiler");
    EXPECT_EQ(begin_counters(std::move(refusing), choice), nullptr);
    EXPECT_EQ(choice.used, Tier::t0);
    EXPECT_NE(choice.why.find("virtual device"), std::string::npos) << choice.why;
    EXPECT_NE(choice.why.find("Measured at T0"), std::string::npos);
}

TEST(OpenTier, NamesTheFallbackTier) {
    const CuptiProbe counters = probe_gpu_counters("RmProfilingAdminOnly: 1\n", "CapEff: 0\n");
    auto made = std::make_unique<FakeCupti>();
    GpuSession session(std::move(made), {.flush_every = 0});
    const TierChoice cpu = open_tier(Tier::t2, false, session, counters);
    EXPECT_EQ(cpu.used, Tier::t0);
    EXPECT_NE(cpu.why.find("CPU"), std::string::npos);
    EXPECT_EQ(session.tier(), Tier::t0);  // nothing was opened
    const TierChoice denied = open_tier(Tier::t3, true, session, counters);
    EXPECT_EQ(denied.used, Tier::t2);
    EXPECT_NE(denied.why.find("NVreg_"), std::string::npos);
    EXPECT_TRUE(open_tier(Tier::t2, true, session, counters).why.empty());
    EXPECT_TRUE(open_tier(Tier::t0, true, session, counters).why.empty());

    auto held = std::make_unique<FakeCupti>();
    held->subscribe_answer = cupti_refusal(39, "busy", "Nsight Systems", "subscribing");
    GpuSession taken(std::move(held));
    const TierChoice refused = open_tier(Tier::t2, true, taken, counters);
    EXPECT_EQ(refused.used, Tier::t0);
    EXPECT_NE(refused.why.find("Nsight Systems"), std::string::npos);
}

}  // namespace
}  // namespace draftscope
