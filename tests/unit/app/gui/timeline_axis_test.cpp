#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "app/gui/models/timeline.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::span;

void pause(CaptureBuilder& built, TimeNs start, TimeNs length) {
    built.add(CounterRow{1, start, std::string(pause_counter), static_cast<double>(length)});
}

/// A step with 62 ms of work and pauses of 3.5 s.
CaptureBuilder looked_at() {
    CaptureBuilder built;
    const TimeNs ms = ns_per_ms;
    built.step(0, 40 * ms, {span(2, 0, 40 * ms)}, {});
    pause(built, 70 * ms, 3500 * ms);
    built.step(40 * ms, 3602 * ms, {span(2, 40 * ms, 70 * ms), span(10, 3570 * ms, 3602 * ms)}, {},
               Excluded::paused, 3500 * ms);
    return built;
}

TEST(FoldedAxis, PauseIsASmallPartOfItsStep) {
    CaptureBuilder built = looked_at();
    FoldedAxis axis;
    axis.update(built.snapshot(), 1);
    ASSERT_EQ(axis.folds().size(), 1u);
    const Fold& fold = axis.folds()[0];
    EXPECT_EQ(fold.length(), 3500 * ns_per_ms);
    EXPECT_LT(fold.width, 62 * ns_per_ms / 10);
    EXPECT_GT(fold.width, 62 * ns_per_ms / 40);
    const TimeNs shown = axis.position(3602 * ns_per_ms) - axis.position(40 * ns_per_ms);
    EXPECT_EQ(shown, 62 * ns_per_ms + fold.width);
    EXPECT_EQ(axis.busy(40 * ns_per_ms, 3602 * ns_per_ms), 62 * ns_per_ms);
    EXPECT_EQ(axis.busy(3602 * ns_per_ms, 40 * ns_per_ms), -62 * ns_per_ms);
    EXPECT_EQ(axis.paused(40 * ns_per_ms, 1070 * ns_per_ms), 1000 * ns_per_ms);
    EXPECT_EQ(axis.fold_at(100 * ns_per_ms), &fold);
    EXPECT_EQ(axis.fold_at(60 * ns_per_ms), nullptr);
    const auto parts = axis.parts(axis.position(50 * ns_per_ms), axis.position(3600 * ns_per_ms));
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].end, 70 * ns_per_ms);
    EXPECT_EQ(parts[1].start, 3570 * ns_per_ms);
    EXPECT_EQ(parts[1].position, fold.position + fold.width);
}

TEST(FoldedAxis, RunWithoutPausesIsUnchanged) {
    CaptureBuilder built;
    built.step(0, 100, {}, {});
    FoldedAxis axis;
    axis.update(built.snapshot(), 1);
    EXPECT_EQ(axis.position(77), 77);
    EXPECT_EQ(axis.time(77), 77);
    EXPECT_EQ(axis.parts(10, 60).size(), 1u);
}

TEST(FoldedAxis, PhasesFillAStepWithManyPauses) {
    CaptureBuilder built;
    TimeNs now = 0;
    constexpr int phases = 24;
    for (int i = 0; i < phases; ++i) {
        now += ns_per_ms;
        pause(built, now, ns_per_s);
        now += ns_per_s;
    }
    built.step(0, now, {}, {}, Excluded::paused, phases * ns_per_s);
    FoldedAxis axis;
    axis.update(built.snapshot(), 1);
    EXPECT_EQ(axis.folds().size(), static_cast<std::size_t>(phases));
    EXPECT_LT(axis.position(now), 2 * phases * ns_per_ms);
}

RC_GTEST_PROP(FoldedAxis, PositionAndTimeAreInverse, ()) {
    CaptureBuilder built;
    TimeNs now = 0;
    for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
        const TimeNs start = now;
        now += *rc::gen::inRange<TimeNs>(1, 5000);
        const TimeNs held = *rc::gen::inRange<TimeNs>(0, 100'000);
        pause(built, now, held);
        now += held;
        now += *rc::gen::inRange<TimeNs>(0, 5000);
        built.step(start, now, {}, {}, Excluded::paused, held);
    }
    FoldedAxis axis;
    axis.update(built.snapshot(), 1);
    TimeNs last = -1;
    for (int i = 0; i < 50; ++i) {
        const TimeNs t = *rc::gen::inRange<TimeNs>(0, now + 1000);
        if (axis.fold_at(t) == nullptr) RC_ASSERT(axis.time(axis.position(t)) == t);
        RC_ASSERT(axis.busy(0, t) <= axis.position(t));
        RC_ASSERT(axis.position(t) <= t);
    }
    for (TimeNs t = 0; t <= now; t += std::max<TimeNs>(now / 200, 1)) {
        RC_ASSERT(axis.position(t) >= last);
        last = axis.position(t);
    }
}

TEST(TimelineTicks, HaveThePrecisionOfTheirZoom) {
    EXPECT_EQ(offset_text(0, 10 * ns_per_ms, 60 * ns_per_ms), "0 ms");
    EXPECT_EQ(offset_text(10 * ns_per_ms, 10 * ns_per_ms, 60 * ns_per_ms), "+10 ms");
    EXPECT_EQ(offset_text(12'340'000, 5'000, 12'400'000), "+12.340 ms");
    EXPECT_EQ(offset_text(12'345'000, 5'000, 12'400'000), "+12.345 ms");
    EXPECT_EQ(offset_text(-2'500'000, 500'000, 2'500'000), "-2.5 ms");
    EXPECT_EQ(offset_text(110'000'000'000, 20'000'000, 110'060'000'000), "+110.00 s");
    EXPECT_EQ(offset_text(110'020'000'000, 20'000'000, 110'060'000'000), "+110.02 s");
    EXPECT_EQ(offset_text(3, 1, 40), "+3 ns");
}

TEST(TimelineTicks, LabelsAreDistinct) {
    for (const TimeNs offset : {TimeNs{0}, TimeNs{12'345'678}, TimeNs{110'987'654'321}})
        for (TimeNs view = 100; view < 200 * ns_per_s; view *= 7) {
            const TimeNs step = tick_step(view, 6);
            const TimeNs first = offset / step * step;
            for (TimeNs mark = first; mark < first + view; mark += step)
                EXPECT_NE(offset_text(mark, step, offset + view),
                          offset_text(mark + step, step, offset + view));
        }
}

TEST(TimelineTicks, CountFromTheSelectedStepIfVisible) {
    CaptureBuilder built;
    for (int i = 0; i < 200; ++i) built.step(i * 1000, i * 1000 + 1000, {}, {});
    const Snapshot snapshot = built.snapshot();
    const StepRow& selected = snapshot.steps[7].row;
    EXPECT_EQ(axis_origin(snapshot, 1, FoldedAxis(), &selected, 6000, 9000).time, 7000);
    EXPECT_EQ(axis_origin(snapshot, 1, FoldedAxis(), &selected, 6000, 9000).text, "from step 9");
    EXPECT_EQ(axis_origin(snapshot, 1, FoldedAxis(), &selected, 20'500, 22'500).time, 20'000)
        << "the step is not visible";
    EXPECT_EQ(axis_origin(snapshot, 1, FoldedAxis(), &selected, 0, 200'000).time, 0)
        << "the step is too short for the view";
    CaptureBuilder held = looked_at();
    const Snapshot paused = held.snapshot();
    FoldedAxis axis;
    axis.update(paused, 1);
    const StepRow& long_look = paused.steps[1].row;
    EXPECT_EQ(axis_origin(paused, 1, axis, &long_look, 0, 3602 * ns_per_ms).time, long_look.start_ns)
        << "a pause does not count as part of the view";
    EXPECT_EQ(axis_origin(Snapshot(), 1, FoldedAxis(), nullptr, 5, 9).text, "from the start");
}

}  // namespace
}  // namespace draftscope
