#include "app/gui/models/timeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::span;

struct Random {
    TimelineRow row;
    TimeNs end = 0;
};

Random random_row() {
    Random out;
    // Rarely long enough for several pieces.
    const int n =
        *rc::gen::weightedOneOf<int>({{7, rc::gen::inRange(0, 400)}, {1, rc::gen::inRange(0, 5000)}});
    // Sometimes so long that the times of a piece exceed 32 bits, from its first interval on or later.
    const auto scale = *rc::gen::weightedElement<TimeNs>({{5, 1}, {1, 100'000}, {1, 40'000'000}});
    for (int i = 0; i < n; ++i) {
        out.end += scale * *rc::gen::inRange<TimeNs>(0, 30);
        const TimeNs length =
            scale * *rc::gen::weightedElement<TimeNs>(
                        {{8, *rc::gen::inRange<TimeNs>(0, 12)}, {1, *rc::gen::inRange<TimeNs>(0, 900)}});
        out.row.append(out.end, out.end + length, static_cast<std::uint8_t>(*rc::gen::inRange(1, 6)),
                       static_cast<std::uint32_t>(i));
        out.end += length;
    }
    return out;
}

/// The expected blocks, computed from every interval: wide intervals alone, narrow intervals by pixel column.
struct Expected {
    std::vector<std::size_t> wide;
    struct Column {
        std::uint32_t count = 0;
        std::array<TimeNs, 32> busy{};
    };
    std::map<int, Column> columns;
};

Expected brute_force(const TimelineRow& row, const TimelineView& view) {
    Expected out;
    const double column_ns = view.ns_per_column();
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (row.end(i) <= view.begin || row.start(i) >= view.end) continue;
        if (static_cast<double>(row.end(i) - row.start(i)) >= column_ns) {
            out.wide.push_back(i);
            continue;
        }
        const int column =
            static_cast<int>(std::floor(static_cast<double>(row.start(i) - view.begin) / column_ns));
        ++out.columns[column].count;
        out.columns[column].busy[row.phase(i)] += row.end(i) - row.start(i);
    }
    return out;
}

RC_GTEST_PROP(TimelineDecimation, EqualsReadingEveryInterval, ()) {
    const Random random = random_row();
    TimelineView view;
    view.begin = *rc::gen::inRange<TimeNs>(0, random.end + 1);
    view.end = view.begin + *rc::gen::inRange<TimeNs>(1, random.end + 100);
    view.columns = *rc::gen::inRange(1, 200);
    std::vector<TimelineBlock> blocks;
    visible_blocks(random.row, view, blocks);
    const Expected expected = brute_force(random.row, view);
    std::vector<std::size_t> wide;
    std::map<int, std::uint32_t> columns;
    for (const TimelineBlock& block : blocks) {
        const bool narrow = static_cast<double>(block.end - block.start) < view.ns_per_column();
        if (block.count == 1 && !narrow) {
            wide.push_back(block.index);
            continue;
        }
        RC_ASSERT(columns.count(block.column) == 0u);
        columns[block.column] = block.count;
        const auto at = expected.columns.find(block.column);
        RC_ASSERT(at != expected.columns.end());
        const auto& busy = at->second.busy;
        const TimeNs max_busy = *std::max_element(busy.begin(), busy.end());
        if (max_busy > 0) RC_ASSERT(busy[block.phase] == max_busy);
        double total = 0;
        for (const TimeNs ns : busy) total += static_cast<double>(ns);
        RC_ASSERT(std::abs(block.density - std::min(1.0, total / view.ns_per_column())) < 1e-4);
    }
    RC_ASSERT(wide == expected.wide);
    RC_ASSERT(columns.size() == expected.columns.size());
    for (const auto& [column, what] : expected.columns) RC_ASSERT(columns[column] == what.count);
}

TEST(TimelineDecimation, DoesNotReadTenMillionIntervalsOneByOne) {
    constexpr std::uint32_t count = 10'000'000;
    TimelineRow row;
    for (std::uint32_t i = 0; i < count; ++i)
        row.append(TimeNs{i} * 10, TimeNs{i} * 10 + 3 + i % 7, static_cast<std::uint8_t>(1 + i % 9), i);
    std::vector<TimelineBlock> blocks;
    constexpr int columns = 800;
    for (TimeNs span_ns = TimeNs{count} * 10; span_ns > 100; span_ns /= 3) {
        blocks.clear();
        const TimelineView view{TimeNs{count} * 5 - span_ns / 2, TimeNs{count} * 5 + span_ns / 2, columns};
        EXPECT_LE(visible_blocks(row, view, blocks), 128u * (columns + 1)) << span_ns;
        EXPECT_LE(blocks.size(), 2u * columns + 2) << span_ns;
        // Every interval that starts in the view is in one of the blocks.
        std::size_t shown = 0;
        for (const TimelineBlock& block : blocks) shown += block.count;
        const auto in_sight = row.first_starting(view.end, 0) - row.first_after(view.begin);
        EXPECT_EQ(shown, in_sight) << span_ns;
    }
}

TEST(TimelineDecimation, AMillionIntervalsGiveTwoBlocksPerPixelAtMost) {
    TimelineRow row;
    for (std::uint32_t i = 0; i < 1'000'000; ++i)
        row.append(TimeNs{i} * 10, TimeNs{i} * 10 + (i % 1000 == 0 ? 9 : 3),
                   static_cast<std::uint8_t>(1 + i % 9), i);
    std::vector<TimelineBlock> blocks;
    for (const TimeNs span_ns : {TimeNs{10'000'000}, TimeNs{100'000}, TimeNs{1000}}) {
        blocks.clear();
        visible_blocks(row, {5'000'000 - span_ns / 2, 5'000'000 + span_ns / 2, 800}, blocks);
        EXPECT_LE(blocks.size(), 1602u);
        EXPECT_GE(blocks.size(), 100u);
    }
}

RC_GTEST_PROP(TimelineRow, SumsByPhaseEqualDirectSums, ()) {
    const Random random = random_row();
    const auto n = static_cast<int>(random.row.size());
    const int first = *rc::gen::inRange(0, n + 1), last = *rc::gen::inRange(first, n + 1);
    std::array<TimeNs, 32> sums{}, expected{};
    random.row.busy_by_phase(static_cast<std::size_t>(first), static_cast<std::size_t>(last), sums);
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
        expected[random.row.phase(i)] += random.row.end(i) - random.row.start(i);
    RC_ASSERT(sums == expected);
}

std::vector<std::array<TimeNs, 4>> contents(const TimelineRow& row) {
    std::vector<std::array<TimeNs, 4>> out;
    for (std::size_t i = 0; i < row.size(); ++i)
        out.push_back({row.start(i), row.end(i), row.phase(i), static_cast<TimeNs>(row.source(i))});
    return out;
}

RC_GTEST_PROP(TimelineRow, CopiesStayUnchangedWhileTheRowGrowsAndShrinks, ()) {
    TimelineRow row = random_row().row;
    const auto all = contents(row);
    const auto n = static_cast<int>(all.size());
    const TimelineRow view = row;
    const auto kept = static_cast<std::size_t>(*rc::gen::inRange(0, n + 1));
    row.keep_first(kept);
    RC_ASSERT(contents(row) == std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept)));
    // A different end than before: removed intervals must not affect the sums.
    TimeNs now = kept > 0 ? row.end(kept - 1) : 0;
    PhaseSums expected{}, sums{};
    for (std::size_t i = 0; i < kept; ++i) expected[row.phase(i)] += row.end(i) - row.start(i);
    for (int i = *rc::gen::inRange(0, 2000); i > 0; --i, now += 10) {
        row.append(now, now + 7, 9, 1);
        expected[9] += 7;
    }
    row.busy_by_phase(0, row.size(), sums);
    RC_ASSERT(sums == expected);
    RC_ASSERT(contents(view) == all);
    view.busy_by_phase(0, view.size(), sums);
    expected.fill(0);
    for (const auto& [start, end, phase, source] : all) expected[phase] += end - start;
    RC_ASSERT(sums == expected);
}

std::vector<std::string> lane_texts(const std::shared_ptr<const RunLanes>& index) {
    std::vector<std::string> out;
    for (const TimelineLane& lane : index->lanes)
        for (std::size_t depth = 0; depth < lane.rows.size(); ++depth) {
            std::string text = fmt::format("{}{}:", lane.name, depth);
            const TimelineRow& row = lane.rows[depth];
            for (std::size_t i = 0; i < row.size(); ++i)
                text += fmt::format(" {}-{}", row.start(i), row.end(i));
            out.push_back(text);
        }
    return out;
}

TEST(RunLanes, SaysThatTierOneHasNoEagerKernels) {
    Snapshot snapshot;
    for (const char* tier : {"T0", "T1", "T2"}) {
        RunRow row;
        row.id = static_cast<RowId>(snapshot.runs.size() + 1);
        row.tier = tier;
        snapshot.runs.push_back(row);
    }
    EXPECT_STREQ(missing_in_lanes(snapshot, 1), "");
    EXPECT_THAT(missing_in_lanes(snapshot, 2), ::testing::HasSubstr("heads and top-k"));
    EXPECT_STREQ(missing_in_lanes(snapshot, 3), "");
}

TEST(RunLanes, NestsByIntervalInAnyArrivalOrder) {
    CaptureBuilder built;
    // Inner scopes end first, so a child is recorded before its parent.
    built.step(5, 100, {span(6, 12, 15), span(5, 10, 20), span(10, 30, 90), span(3, 11, 40, 1)}, {});
    auto index = run_lanes(built.snapshot(), 1);
    EXPECT_THAT(lane_texts(index),
                ::testing::ElementsAre("steps0: 5-100", "levels0: 10-20", "main thread0: 10-20 30-90",
                                       "main thread1: 12-15", "side thread0: 11-40"));
    EXPECT_EQ(index->begin, 5);
    EXPECT_EQ(index->end, 100);
}

TEST(RunLanes, IncrementalBuildEqualsFullBuildWithLateSpans) {
    CaptureBuilder built;
    std::shared_ptr<const RunLanes> grown;
    for (int i = 0; i < 20; ++i) {
        const TimeNs t = i * 100;
        built.step(t, t + 100, {span(2, t + 10, t + 30), span(10, t + 40, t + 90)}, {});
        grown = run_lanes(built.snapshot(), 1);
    }
    SpansRecorded late;
    for (const TimeNs start : {0, 500, 1400}) {
        late.spans.push_back(span(4, start + 31, start + 39));
        late.spans.back().run_id = 1;
    }
    built.add(late);
    grown = run_lanes(built.snapshot(), 1);
    auto whole = run_lanes(built.snapshot(), 1);
    EXPECT_EQ(lane_texts(grown), lane_texts(whole));
}

struct Interval {
    TimeNs start, end;
    int phase;
};
/// Spans as from a faulty clock or a late GPU: in any order, empty, nested, crossing, or ending before their
/// start.
std::vector<Interval> wild_intervals() {
    return *rc::gen::container<std::vector<Interval>>(rc::gen::apply(
        [](TimeNs start, TimeNs length, int phase) {
            return Interval{start, start + length, phase};
        },
        rc::gen::inRange<TimeNs>(0, 3000), rc::gen::inRange<TimeNs>(-40, 400), rc::gen::inRange(1, 11)));
}

RC_GTEST_PROP(RunLanes, ContainsEverySpanOnceAtEveryZoom, ()) {
    const std::vector<Interval> all = wild_intervals();
    CaptureBuilder built;
    auto index = std::make_shared<const RunLanes>();
    PhaseSums expected{};
    for (std::size_t i = 0; i < all.size();) {  // with their step, late, or all at once
        SpansRecorded some;
        for (int n = *rc::gen::inRange(1, 20); n > 0 && i < all.size(); --n, ++i) {
            some.spans.push_back(span(all[i].phase, all[i].start, all[i].end));
            some.spans.back().run_id = 1;
            expected[all[i].phase] += std::max<TimeNs>(all[i].end - all[i].start, 0);
        }
        built.add(some);
        index = run_lanes(built.snapshot(), 1);
    }
    PhaseSums sums{};
    std::size_t held = 0, shown = 0;
    for (const TimelineLane& lane : index->lanes) {
        if (lane.kind != LaneKind::cpu) continue;
        for (const TimelineRow& row : lane.rows) {
            held += row.size();
            PhaseSums part;
            row.busy_by_phase(0, row.size(), part);
            for (std::size_t p = 0; p < part.size(); ++p) sums[p] += part[p];
            for (std::size_t i = 1; i < row.size(); ++i) {
                RC_ASSERT(row.start(i) >= row.end(i - 1));
                RC_ASSERT(row.start(i) >= row.start(i - 1));
            }
            std::vector<TimelineBlock> blocks;
            visible_blocks(row, {-10, 4000, *rc::gen::inRange(1, 300)}, blocks);
            for (const TimelineBlock& block : blocks) shown += block.count;
        }
    }
    RC_ASSERT(held == all.size());
    RC_ASSERT(shown == all.size());
    RC_ASSERT(sums == expected);
}

TEST(RunLanes, JoinsTheDraftSpansOfALevel) {
    CaptureBuilder built;
    std::vector<SpanRow> spans = {span(2, 0, 10),  span(4, 12, 20), span(2, 20, 30),
                                  span(4, 30, 38), span(9, 38, 40), span(10, 40, 90)};
    spans[2].level = spans[3].level = 1;
    built.step(0, 100, spans, {});
    built.step(100, 200, {span(2, 100, 110)}, {});
    auto index = run_lanes(built.snapshot(), 1);
    EXPECT_EQ(lane_texts(index)[1], "levels0: 0-20 20-38 100-110");
    const TimelineLane& lane = index->lanes[1];
    EXPECT_EQ(lane.kind, LaneKind::levels);
    const Snapshot snapshot = built.snapshot();
    EXPECT_EQ(describe_interval(snapshot, lane, lane.rows[0], 0)[0], "catch-up");
    EXPECT_EQ(describe_interval(snapshot, lane, lane.rows[0], 1)[0], "level 1");
}

TEST(RunLanes, StartsOverForAnotherRun) {
    CaptureBuilder built;
    built.step(0, 100, {span(2, 10, 30)}, {});
    auto index = run_lanes(built.snapshot(), 1);
    EXPECT_FALSE(index->empty());
    index = run_lanes(built.snapshot(), 2);
    EXPECT_TRUE(index->empty());
    EXPECT_TRUE(index->lanes.empty());
}

TEST(RunLanes, StartsOverWhenANewCaptureUsesTheSameRunId) {
    CaptureBuilder first, second;
    first.step(0, 100, {span(2, 10, 30)}, {});
    second.step(0, 100, {span(2, 40, 60)}, {});
    auto index = run_lanes(first.snapshot(), 1);
    Snapshot later = second.snapshot();
    later.runs[0].started_monotonic = 5;
    index = run_lanes(later, 1);
    EXPECT_THAT(lane_texts(index), ::testing::Contains("main thread0: 40-60"));
}

TEST(TimelineView, ZoomKeepsTheTimeUnderThePointer) {
    const TimelineView view{1000, 3000, 100};
    const TimelineView in = zoom_view(view, 0.5, 0.25, 10);
    EXPECT_EQ(in.begin, 1250);
    EXPECT_EQ(in.end, 2250);
    const TimelineView narrowest = zoom_view(view, 1e-9, 0.5, 200);
    EXPECT_EQ(narrowest.end - narrowest.begin, 200);
    EXPECT_EQ(narrowest.begin, 1900);
}

TEST(TimelineView, TicksAreRoundAndNotTooMany) {
    EXPECT_EQ(tick_step(1000, 10), 100);
    EXPECT_EQ(tick_step(1001, 10), 200);
    EXPECT_EQ(tick_step(40'000'000, 5), 10'000'000);
    EXPECT_EQ(tick_step(0, 0), 1);
}

TEST(TimelineView, DurationsHaveThreeDigits) {
    EXPECT_EQ(duration_text(0), "0 ns");
    EXPECT_EQ(duration_text(999), "999 ns");
    EXPECT_EQ(duration_text(1500), "1.50 us");
    EXPECT_EQ(duration_text(999'400), "999 us");
    EXPECT_EQ(duration_text(12'340'000), "12.3 ms");
    EXPECT_EQ(duration_text(2'500'000'000), "2.50 s");
}

TEST(TimelineHit, FindsIntervalsAndTheirRounds) {
    CaptureBuilder built;
    built.step(0, 100, {span(2, 10, 30), span(10, 40, 90, 0, 500)}, {});
    built.step(100, 200, {span(2, 110, 130)}, {});
    const Snapshot snapshot = built.snapshot();
    auto index = run_lanes(snapshot, 1);
    const TimelineLane& lane = index->lanes[2];
    const TimelineRow& row = lane.rows[0];
    EXPECT_EQ(interval_at(row, 20, 0), 0u);
    EXPECT_EQ(interval_at(row, 35, 0), std::nullopt);
    EXPECT_EQ(interval_at(row, 38, 3), 1u);
    EXPECT_EQ(interval_at(row, 32, 3), 0u);
    EXPECT_EQ(round_of_interval(snapshot, lane, row, 2), 1u);
    EXPECT_EQ(round_of_interval(snapshot, index->lanes[0], index->lanes[0].rows[0], 1), 1u);
    const std::vector<std::string> lines = describe_interval(snapshot, lane, row, 1);
    EXPECT_EQ(lines[0], "verify");
    EXPECT_EQ(lines[1], "50 ns, at +40 ns from the start");
    EXPECT_EQ(lines[2], "rows: 0") << "verification has no levels";
    EXPECT_EQ(describe_interval(snapshot, lane, row, 0)[2], "level 0, rows: 0");
    EXPECT_EQ(lines[3], "0.00 MB, 10.0 GB/s");
}

TEST(Timeline, ANewStepIsShownWhole) {
    const std::pair<TimeNs, TimeNs> before(1000, 1040), step(2000, 2080);
    const auto shows = [](const TimelineView& view, std::pair<TimeNs, TimeNs> part) {
        return view.begin <= part.first && view.end >= part.second;
    };
    // As wide as the step before: widened for a longer one, kept for a shorter one.
    const TimelineView fitted{1000, 1040, 100};
    const TimelineView wider = follow_step(fitted, ViewWidth::chosen, before, step, 5000);
    EXPECT_TRUE(shows(wider, step));
    EXPECT_LT(wider.end - wider.begin, 90);
    const TimelineView back = follow_step(wider, ViewWidth::chosen, step, before, 5000);
    EXPECT_TRUE(shows(back, before));
    EXPECT_NEAR(static_cast<double>(back.end - back.begin), static_cast<double>(wider.end - wider.begin), 1);
    // The user's width may hold many steps, and a step in view moves nothing.
    const TimelineView many{0, 4000, 100};
    EXPECT_EQ(follow_step(many, ViewWidth::chosen, before, step, 5000).begin, 0);
    // Until the user changes the view, it is a few steps wide; the newest step lies at its right.
    const TimelineView auto_width = follow_step(fitted, ViewWidth::steps, before, step, 2080);
    EXPECT_TRUE(shows(auto_width, step));
    EXPECT_EQ(auto_width.end - auto_width.begin, 128);
    EXPECT_LT(auto_width.end, 2090);
}

TEST(Timeline, APartOfAStepStaysThisPart) {
    const TimelineView part{1005, 1015, 100};
    const TimelineView next = follow_step(part, ViewWidth::part, {1000, 1040}, {2000, 2080}, 5000);
    EXPECT_EQ(next.begin, 2005);
    EXPECT_EQ(next.end, 2015);
    // The step before was out of view.
    const TimelineView far =
        follow_step({3000, 3010, 100}, ViewWidth::part, {1000, 1040}, {2000, 2080}, 5000);
    EXPECT_LE(far.begin, 2000);
    EXPECT_GE(far.end, 2080);
}

}  // namespace
}  // namespace draftscope
