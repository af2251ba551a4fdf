#include "app/gui/models/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/phase_names.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;
using testing::span;

enum : std::size_t { backbone = 2, head = 4, topk = 5, softmax = 6, verify = 10, remainder = 13 };

/// Spans of a step of 100: backbone 20, head 10, topk 6 (softmax 2), verify 50, remainder 14.
std::vector<SpanRow> spans_at(TimeNs t, TimeNs scale = 1) {
    return {span(backbone, t, t + 20 * scale), span(head, t + 20 * scale, t + 30 * scale, 0, 1000),
            span(softmax, t + 31 * scale, t + 33 * scale), span(topk, t + 30 * scale, t + 36 * scale),
            span(verify, t + 40 * scale, t + 90 * scale)};
}

double sum(const PhaseBar& bar) {
    return std::accumulate(bar.part_ns.begin(), bar.part_ns.end(), 0.0);
}

TEST(PhaseBars, PartsAddUpToTheStep) {
    CaptureBuilder built;
    built.step(0, 100, spans_at(0), {});
    std::vector<SpanRow> with_side = spans_at(200);
    with_side.push_back(
        span(3, 230, 295, 1));  // router on the side thread: exposed while the main thread idles
    built.step(200, 300, with_side, {}, Excluded::warmup);
    const PhaseBars bars = build_phase_bars(built.snapshot(), 1, 0, 2, 100);
    ASSERT_EQ(bars.bars.size(), 2u);
    for (const PhaseBar& bar : bars.bars) {
        EXPECT_DOUBLE_EQ(sum(bar), 100);
        EXPECT_DOUBLE_EQ(bar.step_ns, 100);
    }
    const PhaseBar& bar = bars.bars[0];
    EXPECT_DOUBLE_EQ(bar.part_ns[backbone], 20);
    EXPECT_DOUBLE_EQ(bar.part_ns[topk], 4);
    EXPECT_DOUBLE_EQ(bar.part_ns[softmax], 2);
    EXPECT_DOUBLE_EQ(bar.part_ns[remainder], 14);
    EXPECT_EQ(bar.excluded, 0u);
    EXPECT_EQ(bars.bars[1].excluded, 1u);
}

TEST(PhaseTable, OmitsSharesWithoutCountedSteps) {
    CaptureBuilder built;
    built.step(0, 100, spans_at(0), {}, Excluded::warmup);
    const PhasesModel before = PhasesBuilder().build(built.snapshot(), 1);
    EXPECT_EQ(before.caption, "no counted steps yet; 1 warm-up excluded");
    EXPECT_EQ(before.shares_text, "");
    built.step(200, 300, spans_at(200), {});
    const PhasesModel after = PhasesBuilder().build(built.snapshot(), 1);
    EXPECT_EQ(after.caption, "1 step; 1 warm-up excluded");
    EXPECT_EQ(after.shares_text, "; drafting 36 % (head 16 %)");
}

std::vector<PhaseSample> samples_of(const std::vector<TimeNs>& times) {
    std::vector<PhaseSample> out;
    for (const TimeNs ns : times) out.push_back({static_cast<std::uint32_t>(10 + out.size()), ns, ns, 0});
    return out;
}

std::vector<std::int64_t> counts(const PhaseHistogram& histogram) {
    std::vector<std::int64_t> out;
    for (const PhaseHistogram::Bin& bin : histogram.bins) out.push_back(bin.steps);
    return out;
}

TEST(PhaseHistogram, LinearBinsHoldEveryStepOnce) {
    const auto samples = samples_of({1000, 1900, 2100, 2999, 5000});
    const PhaseHistogram histogram = build_phase_histogram(samples, false, 4, 13);
    EXPECT_EQ(counts(histogram), (std::vector<std::int64_t>{2, 2, 0, 1})) << "of 1 us, from 1 us on";
    EXPECT_DOUBLE_EQ(histogram.bins[1].low_us, 2);
    EXPECT_DOUBLE_EQ(histogram.bins[3].high_us, 5);
    EXPECT_EQ(histogram.bins[0].slowest, 11u);
    EXPECT_EQ(histogram.bins[1].slowest, 13u);
    EXPECT_DOUBLE_EQ(histogram.bins[1].slowest_us, 2.999);
    EXPECT_EQ(histogram.steps, 5);
    EXPECT_EQ(histogram.tallest, 2);
    EXPECT_DOUBLE_EQ(histogram.median_us, 2.1);
    EXPECT_FALSE(histogram.p90_us) << "too few steps";
    EXPECT_EQ(histogram.selected_us, 2.999);
    EXPECT_DOUBLE_EQ(histogram.place(3), 0.5);
    EXPECT_DOUBLE_EQ(histogram.place(99), 1) << "at the edge";
    EXPECT_FALSE(build_phase_histogram(samples, false, 4, 99).selected_us);
}

TEST(PhaseHistogram, LogarithmicBinsHaveEqualRatios) {
    const PhaseHistogram histogram =
        build_phase_histogram(samples_of({1000, 9000, 11000, 99000, 101000, 1000000}), true, 3, {});
    EXPECT_EQ(counts(histogram), (std::vector<std::int64_t>{2, 2, 2}));
    EXPECT_NEAR(histogram.bins[1].low_us, 10, 1e-9);
    EXPECT_NEAR(histogram.place(100), 2.0 / 3, 1e-9);
}

TEST(PhaseHistogram, EqualZeroAndMissingTimes) {
    for (const bool logarithmic : {false, true}) {
        EXPECT_TRUE(build_phase_histogram({}, logarithmic, 5, {}).bins.empty());
        const auto equal = build_phase_histogram(samples_of({700, 700, 700}), logarithmic, 5, {});
        EXPECT_EQ(counts(equal), (std::vector<std::int64_t>{3, 0, 0, 0, 0}));
        const auto zero = build_phase_histogram(samples_of({0, 0, 4000}), logarithmic, 2, {});
        EXPECT_EQ(counts(zero), (std::vector<std::int64_t>{2, 1}));
    }
}

/// The lines of the histogram are the figures of the table, of the run and of a range.
TEST(PhaseHistogram, HasTheSamplesOfTheTable) {
    CaptureBuilder built;
    for (int i = 0; i < 400; ++i)
        built.step(i * 1000, i * 1000 + 100 * (1 + i % 9), spans_at(i * 1000, 1 + i % 9), {});
    const Snapshot snapshot = built.snapshot();
    PhasesBuilder builder;
    for (const std::optional<TimeRange>& range : {std::optional<TimeRange>(), {{20'000, 390'000}}}) {
        const PhasesModel model = builder.build(snapshot, 1, range);
        const auto row = std::ranges::find(model.rows, static_cast<int>(verify), &PhaseTableRow::phase_id);
        const std::vector<PhaseSample> samples = builder.samples(verify);
        const PhaseHistogram histogram = build_phase_histogram(samples, true, 10, {});
        EXPECT_EQ(histogram.steps, row->count);
        EXPECT_DOUBLE_EQ(histogram.median_us, row->median_us);
        EXPECT_EQ(histogram.p90_us, row->p90_us);
        EXPECT_EQ(histogram.p99_us, row->p99_us);
        EXPECT_EQ(samples.front().step, range ? 20u : 0u);
        EXPECT_EQ(samples.back().step, range ? 389u : 399u);
        for (const PhaseSample& sample : samples)
            EXPECT_EQ(sample.busy_ns, step_phases(snapshot, sample.step).ns[verify]);
    }
}

TEST(PhaseBars, ManyStepsBecomeMeansOfNeighbours) {
    CaptureBuilder built;
    for (int i = 0; i < 10; ++i) {
        RoundRecord round;
        round.round.accepted = i;
        built.step(i * 1000, i * 1000 + 100 * (i + 1), spans_at(i * 1000, i + 1), round);
    }
    const PhaseBars bars = build_phase_bars(built.snapshot(), 1, 0, 10, 4);
    ASSERT_EQ(bars.bars.size(), 4u);
    EXPECT_EQ(bars.steps_per_bar, 3);
    EXPECT_DOUBLE_EQ(bars.bars[0].step_ns, 200);
    EXPECT_DOUBLE_EQ(bars.bars[0].slowest_ns, 300);
    EXPECT_EQ(bars.bars[0].accepted, 3);
    EXPECT_EQ(bars.bars[3].steps, 1u);
    EXPECT_DOUBLE_EQ(bars.tallest_ns, 1000);
    for (const PhaseBar& bar : bars.bars) EXPECT_NEAR(sum(bar), bar.step_ns, 1e-9);
}

TEST(PhasesBuilder, IncrementalBuildEqualsFullBuildAndReadsStepsOnce) {
    CaptureBuilder built;
    built.prompt("chat");
    built.prompt("code");
    PhasesBuilder builder;
    for (int i = 0; i < 60; ++i) {
        RoundRecord round;
        round.round.prompt_id = 1 + i % 2;
        built.step(i * 10000, i * 10000 + 100 * (1 + i % 7), spans_at(i * 10000, 1 + i % 7), round,
                   i % 5 == 0 ? Excluded::warmup : Excluded::no);
        if (i % 9 != 8) continue;
        const Snapshot snapshot = built.snapshot();
        const PhasesModel grown = builder.build(snapshot, 1), whole = PhasesBuilder().build(snapshot, 1);
        ASSERT_EQ(grown.rows.size(), whole.rows.size());
        for (std::size_t r = 0; r < whole.rows.size(); ++r) {
            EXPECT_EQ(grown.rows[r].count, whole.rows[r].count);
            EXPECT_EQ(grown.rows[r].median_us, whole.rows[r].median_us);
            EXPECT_EQ(grown.rows[r].mad_us, whole.rows[r].mad_us);
            EXPECT_EQ(grown.rows[r].share, whole.rows[r].share);
        }
        ASSERT_EQ(grown.categories.size(), 2u);
        for (std::size_t c = 0; c < 2; ++c) {
            EXPECT_EQ(grown.categories[c].steps, whole.categories[c].steps);
            EXPECT_EQ(grown.categories[c].head, whole.categories[c].head);
        }
        EXPECT_EQ(grown.caption, whole.caption);
        // No step is read twice: each build reads only new steps.
        EXPECT_EQ(static_cast<std::int64_t>(builder.steps_read()), grown.counted_steps);
    }
    // A build with a range does not affect the incremental state.
    const std::size_t before = builder.steps_read();
    const PhasesModel part = builder.build(built.snapshot(), 1, TimeRange{100000, 200000});
    EXPECT_EQ(part.counted_steps, 8);
    builder.build(built.snapshot(), 1);
    EXPECT_EQ(builder.steps_read() - before, 5u);  // the steps since the last build
}

TEST(PhaseBars, WindowSurroundsTheSelectedStep) {
    CaptureBuilder built;
    for (int i = 0; i < 50; ++i) built.step(i * 10, i * 10 + 10, {}, {});
    const Snapshot snapshot = built.snapshot();
    const auto window = [&](std::optional<std::size_t> at, std::size_t count) {
        const StepWindow w = step_window(snapshot, 1, at, count);
        return std::pair(w.first, w.last);
    };
    EXPECT_EQ(window(std::nullopt, 10), std::pair(std::size_t{40}, std::size_t{50}));
    EXPECT_EQ(window(0, 10), std::pair(std::size_t{0}, std::size_t{10}));
    EXPECT_EQ(window(49, 10), std::pair(std::size_t{40}, std::size_t{50}));
    const auto [first, last] = window(25, 10);
    EXPECT_EQ(last - first, 10u);
    EXPECT_TRUE(first <= 25 && 25 < last);
    EXPECT_EQ(window(25, 1000), std::pair(std::size_t{0}, std::size_t{50}));
    EXPECT_EQ(step_window(snapshot, 7, std::nullopt, 10).last, 0u);
    // A chart of some steps says so.
    EXPECT_EQ(shown_steps_text(snapshot, 1, {40, 50}), "; bars: 10 of 50 steps");
    EXPECT_EQ(shown_steps_text(snapshot, 1, {0, 50}), "");
}

TEST(PhaseTable, KeepsFirstClassPhasesAndTheRemainder) {
    CaptureBuilder built;
    for (int i = 0; i < 4; ++i)
        built.step(i * 1000, i * 1000 + 100, spans_at(i * 1000), {},
                   i == 0 ? Excluded::warmup : Excluded::no);
    const PhasesModel model = PhasesBuilder().build(built.snapshot(), 1);
    EXPECT_EQ(model.counted_steps, 3);
    EXPECT_EQ(model.caption, "3 steps; 1 warm-up excluded");
    std::vector<std::string> names;
    double share = 0;
    for (const PhaseTableRow& row : model.rows) {
        names.push_back(row.name);
        share += row.share;
        EXPECT_EQ(row.phase_id == remainder_phase_id, row.name == "remainder");
        EXPECT_EQ(row.child, row.name == "softmax");
        EXPECT_FALSE(row.p90_us.has_value()) << "3 samples are not enough";
    }
    EXPECT_THAT(names, ::testing::ElementsAre("backbone", "head", "topk", "softmax", "gather", "verify",
                                              "remainder"));
    EXPECT_NEAR(share, 1, 1e-9);
    EXPECT_EQ(model.shares_text, "; drafting 36 % (head 16 %)");
    EXPECT_DOUBLE_EQ(model.rows[1].gb_per_s.value_or(0), 100);
    EXPECT_FALSE(model.rows[0].gb_per_s.has_value());
}

TEST(PhaseTable, RangeCountsOnlyItsSteps) {
    CaptureBuilder whole, part;
    for (int i = 0; i < 8; ++i) {
        const Excluded excluded = i == 3 ? Excluded::shadow : Excluded::no;
        whole.step(i * 1000, i * 1000 + 100 * (i + 1), spans_at(i * 1000, i + 1), {}, excluded);
        if (i >= 2 && i <= 5)
            part.step(i * 1000, i * 1000 + 100 * (i + 1), spans_at(i * 1000, i + 1), {}, excluded);
    }
    const PhasesModel in_range = PhasesBuilder().build(whole.snapshot(), 1, TimeRange{2050, 5010});
    const PhasesModel alone = PhasesBuilder().build(part.snapshot(), 1);
    EXPECT_EQ(in_range.caption, "3 steps in the range (Esc clears it); 1 shadow excluded");
    ASSERT_EQ(in_range.rows.size(), alone.rows.size());
    for (std::size_t i = 0; i < alone.rows.size(); ++i) {
        EXPECT_DOUBLE_EQ(in_range.rows[i].total_ms, alone.rows[i].total_ms);
        EXPECT_DOUBLE_EQ(in_range.rows[i].median_us, alone.rows[i].median_us);
    }
}

TEST(PhaseTable, SplitsDraftingByCategory) {
    CaptureBuilder built;
    built.prompt("code");
    built.prompt("chat");
    for (int i = 0; i < 4; ++i) {
        RoundRecord round;
        round.round.prompt_id = 1 + i % 2;
        built.step(i * 1000, i * 1000 + (i % 2 == 0 ? 100 : 200), spans_at(i * 1000), round);
    }
    const PhasesModel model = PhasesBuilder().build(built.snapshot(), 1);
    ASSERT_EQ(model.categories.size(), 2u);
    EXPECT_EQ(model.categories[0].category, "chat");
    EXPECT_NEAR(model.categories[0].draft(), 0.18, 1e-9);
    EXPECT_NEAR(model.categories[1].backbone, 0.2, 1e-9);
    EXPECT_NEAR(model.categories[1].head, 0.16, 1e-9);
}

TEST(PhaseTable, ExplainsAnEmptyTable) {
    EXPECT_THAT(PhasesBuilder().build(Snapshot(), 1).empty_text, HasSubstr("No run yet"));
    CaptureBuilder built;
    EXPECT_THAT(PhasesBuilder().build(built.snapshot(), 1).empty_text, HasSubstr("no steps yet"));
    built.add(RunEnded{1, RunEnd::ok, 100, {}});
    EXPECT_THAT(PhasesBuilder().build(built.snapshot(), 1).empty_text, HasSubstr("No steps were recorded"));
    CaptureBuilder replayed;
    RunRow row;
    row.acceptance = "replayed";
    replayed.run(row);
    replayed.step(0, 0);
    EXPECT_THAT(PhasesBuilder().build(replayed.snapshot(), 1).empty_text, HasSubstr("have no times"));
    replayed.step(10, 900);  // of a run whose acceptance is simulated
    EXPECT_EQ(PhasesBuilder().build(replayed.snapshot(), 1).empty_text, "");
}

TEST(PhaseTable, HeadPhasesMatchTheCostModel) {
    for (const PhaseRow& row : phase_rows) {
        const std::string_view top = row.parent_id != 0 ? phase_rows[row.parent_id].name : row.name;
        const bool expected = top == "router" || top == "head" || top == "topk" || top == "gather";
        EXPECT_EQ(is_head_phase(row.id), expected) << row.name;
    }
}

}  // namespace
}  // namespace draftscope
