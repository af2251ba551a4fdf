#include "app/gui/models/compare.h"

#include <gtest/gtest.h>

#include <cmath>

namespace draftscope {
namespace {

std::shared_ptr<const Snapshot> capture(const char* source, std::vector<RowId> runs) {
    auto out = std::make_shared<Snapshot>();
    out->source = source;
    for (const RowId id : runs) {
        RunRow run;
        run.id = id;
        run.head = "full";
        run.drafter = "eagle2";
        run.ended = RunEnd::ok;
        out->runs.push_back(run);
    }
    return out;
}

TEST(CompareRuns, ListRunsOfAllOpenCaptures) {
    const auto shown = capture("/x/a.dscope", {1, 2});
    const auto runs = comparable_runs(*shown, {capture("/x/a.dscope", {1, 2}), capture("b.dscope", {5})});
    ASSERT_EQ(runs.size(), 3u) << "the shown capture counts once if it is also open as another one";
    EXPECT_EQ(runs[1].label, "a.dscope: run 2, eagle2, full");
    EXPECT_EQ(runs[2].source, "b.dscope");
    EXPECT_EQ(first_pair(runs), std::pair(std::size_t{1}, std::size_t{2}));
}

TEST(CompareRuns, InitialPairIsTheLastTwoRuns) {
    EXPECT_EQ(first_pair(comparable_runs(*capture("", {1, 2, 3}), {})),
              std::pair(std::size_t{1}, std::size_t{2}));
    EXPECT_FALSE(first_pair(comparable_runs(*capture("", {1}), {})).has_value());
}

TEST(CompareRuns, BaselinesAreNotChosenByDefault) {
    auto plain = [](const char* source, std::vector<RowId> runs, RowId baseline) {
        auto out = std::make_shared<Snapshot>(*capture(source, std::move(runs)));
        for (RunRow& run : out->runs) {
            if (run.id != baseline) continue;
            run.drafter = "none";
            run.config_json = R"({"role": "baseline"})";
        }
        return out;
    };
    const auto runs = comparable_runs(*plain("a", {1, 2, 3}, 2), {plain("b", {1, 2}, 1)});
    ASSERT_EQ(runs.size(), 5u);
    EXPECT_NE(runs[1].label.find("(baseline)"), std::string::npos) << runs[1].label;
    EXPECT_EQ(first_pair(runs), std::pair(std::size_t{2}, std::size_t{4}));
    EXPECT_EQ(first_pair(comparable_runs(*plain("a", {1, 2, 3}, 2), {})),
              std::pair(std::size_t{0}, std::size_t{2}));
    EXPECT_EQ(first_pair(comparable_runs(*plain("a", {1, 2}, 1), {})),
              std::pair(std::size_t{0}, std::size_t{1}))
        << "baselines are chosen if there are no other runs";
}

ComparedQuantity quantity(double ratio, std::optional<Interval> interval) {
    ComparedQuantity out;
    out.name = "head";
    out.a = 1;
    out.b = ratio;
    out.ratio.value = ratio;
    out.ratio.interval = interval;
    return out;
}

TEST(Forest, ContainsEveryIntervalAndCentresOne) {
    Comparison comparison;
    comparison.speed = quantity(1.3, Interval{1.2, 1.5});
    comparison.tau = quantity(0.99, std::nullopt);
    comparison.round_time = quantity(0.7, Interval{0.6, 0.8});
    comparison.phases = {quantity(0.4, Interval{0.35, 0.5}), quantity(0, std::nullopt)};
    comparison.phases[1].a = 0;
    const Forest forest = build_forest(comparison);
    ASSERT_EQ(forest.rows.size(), 5u);
    EXPECT_NEAR(forest.at(1), 0.5, 1e-12);
    EXPECT_GT(forest.at(0.35), 0);
    EXPECT_LT(forest.at(1.5), 1);
    EXPECT_NEAR(forest.at(2) + forest.at(0.5), 1, 1e-12) << "2 and 1/2 are equally far from 1";
    EXPECT_FALSE(forest.rows[1].interval.has_value());
    EXPECT_EQ(forest.rows[4].ratio, 0) << "a phase missing in A has no ratio";
    EXPECT_FALSE(forest.ticks.empty());
    for (const double tick : forest.ticks) EXPECT_TRUE(tick >= forest.low && tick <= forest.high);
}

TEST(Forest, OneWideIntervalDoesNotFlattenTheRest) {
    Comparison comparison;
    comparison.speed = quantity(1.01, Interval{0.97, 1.05});
    comparison.phases = {quantity(300, Interval{2, 9000})};
    const Forest forest = build_forest(comparison);
    EXPECT_LE(forest.high, 8);
    EXPECT_EQ(forest.at(9000), 1);
    EXPECT_GT(forest.at(1.05) - forest.at(0.97), 0.015);
}

}  // namespace
}  // namespace draftscope
