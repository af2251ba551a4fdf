#include "engine/control/breakpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace draftscope {
namespace {

std::string met(BreakpointWatch& watch, const RoundEnd& round, const Breakpoints& points) {
    return watch.round_ended(std::vector<RoundEnd>{round}, points).what;
}

SpanEvent took(Phase phase, std::uint64_t ticks, int level = 0) {
    SpanEvent event{.start_ticks = 1000,
                    .end_ticks = 1000 + ticks,
                    .round = 0,
                    .level = static_cast<std::int16_t>(level),
                    .phase = phase};
    return event;
}

TEST(Breakpoints, NoneIsHitIfNoneIsSet) {
    BreakpointWatch watch;
    EXPECT_EQ(met(watch, {0, 3, 2, true, "all of it", 9}, {}), "");
}

TEST(Breakpoints, ARejectionNeedsARejectedNode) {
    BreakpointWatch watch;
    Breakpoints points;
    points.rejection_depth = 2;
    EXPECT_EQ(met(watch, {1, 3, 0, false, "", 0}, points), "rejection at depth <= 2");
    EXPECT_EQ(met(watch, {2, 3, 0, false, "", 0}, points), "");
    EXPECT_EQ(met(watch, {1, 1, 0, false, "", 0}, points), "");  // every draft was accepted
}

TEST(Breakpoints, VocabularyAndEndOfText) {
    BreakpointWatch watch;
    Breakpoints points;
    points.out_of_vocabulary = true;
    EXPECT_EQ(met(watch, {3, 3, 1, false, "", 0}, points), "token outside the head's vocabulary");
    EXPECT_EQ(met(watch, {3, 3, 0, true, "", 0}, points), "");
    points.end_of_text = true;
    EXPECT_EQ(met(watch, {3, 3, 0, true, "", 0}, points), "end of text");
}

TEST(Breakpoints, TextIsFoundAcrossRoundsAndOnlyOnce) {
    Breakpoints points;
    points.text = "needle";
    const std::string text = "hay needle hay needle";
    BreakpointWatch watch;
    std::vector<std::size_t> stops;
    for (std::size_t end = 0; end <= text.size(); ++end)  // one byte a round
        if (!met(watch, {1, 1, 0, false, std::string_view(text).substr(0, end), end == 0 ? 0u : 1u}, points)
                 .empty())
            stops.push_back(end);
    EXPECT_EQ(stops, (std::vector<std::size_t>{10, 21}));
    EXPECT_EQ(met(watch, {1, 1, 0, false, text, text.size()}, points), "text contains \"needle\"");
    EXPECT_EQ(met(watch, {1, 1, 0, false, "nee", 3}, points), "");
}

TEST(Breakpoints, RoundTokenAndTimeOfAStep) {
    BreakpointWatch watch;
    Breakpoints points;
    points.round = 3;
    RoundEnd end{.accepted = 1, .tree_depth = 1};
    end.round = 2;
    EXPECT_EQ(met(watch, end, points), "");
    end.round = 3;
    EXPECT_EQ(met(watch, end, points), "round 3");
    points = {};
    points.token_id = 42;
    const std::vector<TokenId> tokens = {7, 42};
    EXPECT_EQ(met(watch, end, points), "");
    end.committed = tokens;
    EXPECT_EQ(met(watch, end, points), "token 42 committed");
    points = {};
    points.step_ms = 1e9;
    watch.phase_ended(took(Phase::head, 1000), points);
    EXPECT_EQ(met(watch, end, points), "");
    points.step_ms = 1e-9;
    watch.phase_ended(took(Phase::head, 1000), points);
    EXPECT_NE(met(watch, end, points).find("step of"), std::string::npos);
    EXPECT_EQ(met(watch, end, points), "") << "the next step has no phases yet";
}

TEST(Breakpoints, AnySequenceOfABatchCanHitOne) {
    BreakpointWatch watch;
    Breakpoints points;
    points.end_of_text = true;
    std::vector<RoundEnd> rounds = {{3, 3}, {3, 3, 0, true}, {3, 3}};
    for (RoundEnd& round : rounds) round.prompt_id = 11 + (&round - rounds.data());
    const BreakpointHit hit = watch.round_ended(rounds, points);
    EXPECT_EQ(hit.what, "end of text");
    EXPECT_EQ(hit.prompt_id, 12) << "the sequence whose text ended";
}

TEST(Breakpoints, ASlowPhaseIsAboveTheNinetyNinthPercentileOfItsOwnTimes) {
    std::mt19937 random(7);
    Breakpoints points;
    points.slow_phase = true;
    for (const double scale : {3.0, 40.0, 1e4, 3e7}) {
        BreakpointWatch watch;
        std::vector<std::uint64_t> seen;
        std::lognormal_distribution<double> times(0.0, 1.0);
        for (int i = 0; i < 5000; ++i) {
            seen.push_back(static_cast<std::uint64_t>(scale * times(random)));
            watch.phase_ended(took(Phase::verify, seen.back()), {});
        }
        std::sort(seen.begin(), seen.end());
        const auto p99 = static_cast<double>(seen[seen.size() * 99 / 100]);
        watch.phase_ended(took(Phase::verify, static_cast<std::uint64_t>(p99 * 0.9)), points);
        EXPECT_EQ(met(watch, {}, points), "") << scale;
        watch.phase_ended(took(Phase::head, static_cast<std::uint64_t>(p99 * 1000)),
                          points);  // first occurrence
        watch.phase_ended(took(Phase::verify, static_cast<std::uint64_t>(p99 * 1000), 1), points);
        EXPECT_EQ(met(watch, {}, points), "") << scale;
        watch.phase_ended(took(Phase::verify, static_cast<std::uint64_t>(p99 * 1.15) + 2), points);
        EXPECT_TRUE(met(watch, {}, points).starts_with("verify took")) << scale;
        EXPECT_EQ(met(watch, {}, points), "");  // reported once
    }
}

TEST(Breakpoints, ASlowPhaseNeedsAHistoryOfThisRun) {
    Breakpoints points;
    points.slow_phase = true;
    BreakpointWatch watch;
    const auto fill = [&](std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) watch.phase_ended(took(Phase::head, 1000), points);
    };
    fill(BreakpointWatch::min_samples - 1);
    watch.phase_ended(took(Phase::head, 100000), points);
    EXPECT_EQ(met(watch, {}, points), "");
    watch.reset();
    fill(BreakpointWatch::min_samples);
    watch.reset();
    watch.phase_ended(took(Phase::head, 100000), points);
    EXPECT_EQ(met(watch, {}, points), "");
    fill(BreakpointWatch::min_samples);
    watch.phase_ended(took(Phase::head, 200000), points);
    EXPECT_NE(met(watch, {}, points), "");
}

}  // namespace
}  // namespace draftscope
