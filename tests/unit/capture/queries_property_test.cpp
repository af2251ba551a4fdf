#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "capture/queries.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::span;

// Arbitrary spans inside the step: nested, overlapping or disjoint.
std::vector<SpanRow> any_spans(TimeNs step_end) {
    return *rc::gen::container<std::vector<SpanRow>>(rc::gen::exec([step_end] {
        const auto a = *rc::gen::inRange<TimeNs>(0, step_end + 1);
        const auto b = *rc::gen::inRange<TimeNs>(0, step_end + 1);
        return span(*rc::gen::inRange(1, 13), std::min(a, b), std::max(a, b), 0);
    }));
}

RC_GTEST_PROP(StepPhasesProperty, PhasesAndRemainderAddUpToTheStep, ()) {
    const auto end = *rc::gen::inRange<TimeNs>(1, 200);
    CaptureBuilder builder;
    builder.step(0, end, any_spans(end));
    const StepPhases phases = step_phases(builder.snapshot(), 0);
    TimeNs sum = 0;
    for (const TimeNs ns : phases.ns) {
        RC_ASSERT(ns >= 0);
        sum += ns;
    }
    RC_ASSERT(sum == end);
    RC_ASSERT(phases.remainder_ns == phases.ns[13]);
}

RC_GTEST_PROP(StepPhasesProperty, RemainderIsTheTimeNoSpanCovers, ()) {
    const auto end = *rc::gen::inRange<TimeNs>(1, 200);
    const std::vector<SpanRow> spans = any_spans(end);
    std::set<TimeNs> covered;
    for (const SpanRow& each : spans)
        for (TimeNs t = each.start_ns; t < each.end_ns; ++t) covered.insert(t);
    CaptureBuilder builder;
    builder.step(0, end, spans);
    RC_ASSERT(step_phases(builder.snapshot(), 0).remainder_ns == end - static_cast<TimeNs>(covered.size()));
}

RC_GTEST_PROP(PhaseStatsProperty, SharesAddUpToOne, ()) {
    CaptureBuilder builder;
    const int steps = *rc::gen::inRange(1, 6);
    for (int i = 0; i < steps; ++i) {
        const auto end = *rc::gen::inRange<TimeNs>(1, 100);
        builder.step(0, end, any_spans(end));
    }
    double shares = 0;
    TimeNs total = 0;
    for (const PhaseStats& row : phase_stats(builder.snapshot(), 1)) {
        shares += row.share;
        total += row.total_ns;
    }
    RC_ASSERT(std::abs(shares - 1.0) < 1e-9);
    RC_ASSERT(total == run_totals(builder.snapshot(), 1).decode_ns);
}

}  // namespace
}  // namespace draftscope
