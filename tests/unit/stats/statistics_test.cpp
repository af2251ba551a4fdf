#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "capture/quantile.h"
#include "stats/run_statistics.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::round_of;
using testing::span;

TEST(Summary, EqualsNumpy) {
    const double digits[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    std::vector<double> x;
    for (int i = 0; i < 400; ++i) x.push_back(digits[i % 10] + 0.25 * i);
    const Summary s = summarise(x);
    EXPECT_EQ(s.n, 400);
    EXPECT_DOUBLE_EQ(s.total, 21510.0);
    EXPECT_DOUBLE_EQ(s.mean, 53.775);
    EXPECT_DOUBLE_EQ(s.median, 53.625);
    EXPECT_NEAR(s.mad, 37.065, 1e-9);
    ASSERT_TRUE(s.p90 && s.p99);
    EXPECT_NEAR(*s.p90, 93.525, 1e-9);
    EXPECT_NEAR(*s.p99, 103.50999999999999, 1e-9);
}

TEST(Summary, QuantilesNeedEnoughSamples) {
    EXPECT_FALSE(summarise(std::vector<double>(35, 1.0)).p90);
    EXPECT_TRUE(summarise(std::vector<double>(36, 1.0)).p90);
    EXPECT_FALSE(summarise(std::vector<double>(367, 1.0)).p99);
    EXPECT_TRUE(summarise(std::vector<double>(368, 1.0)).p99);
    EXPECT_EQ(summarise({}).n, 0);
}

TEST(Quantile, UnsortedMatchesSorted) {
    Rng rng(3);
    for (std::size_t n = 1; n < 60; ++n) {
        std::vector<double> x;
        for (std::size_t i = 0; i < n; ++i) x.push_back(rng.below(20));
        std::vector<double> sorted = x;
        std::sort(sorted.begin(), sorted.end());
        for (const double q : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0}) {
            std::vector<double> copy = x;
            EXPECT_DOUBLE_EQ(quantile(copy, q), sorted_quantile(sorted, q)) << n << " " << q;
        }
    }
}

/// Approximates a Gaussian by the sum of twelve uniforms.
double gauss(Rng& rng) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.uniform();
    return sum;
}

/// Returns the share of 100 repetitions in which the interval contains the true median 0 of an AR(1) series
/// of 400.
double coverage(double correlation, std::size_t block) {
    int held = 0;
    for (std::uint64_t trial = 0; trial < 100; ++trial) {
        Rng rng(trial, 77);
        std::vector<double> x;
        std::vector<std::uint32_t> unit;
        double last = gauss(rng);
        for (std::size_t i = 0; i < 400; ++i) {
            last = correlation * last + std::sqrt(1 - correlation * correlation) * gauss(rng);
            x.push_back(last);
            unit.push_back(static_cast<std::uint32_t>(i / block));
        }
        BootstrapOptions options{.resamples = 200, .seed = trial};
        held += median_interval(x, unit, 400 / block, options)->contains(0) ? 1 : 0;
    }
    return held / 100.0;
}

TEST(MedianInterval, HasNominalCoverage) {
    // Binomial spread of 100 trials at 0.95: 0.02.
    EXPECT_GE(coverage(0, 1), 0.90);
    // Neighbours are correlated: resampling single steps gives half the coverage, blocks of 25 most of it.
    EXPECT_LT(coverage(0.8, 1), 0.65);
    EXPECT_GT(coverage(0.8, 25), 0.80);
}

TEST(Student, EqualsTables) {
    EXPECT_NEAR(student_t95(1), 12.706, 1e-3);
    EXPECT_NEAR(student_t95(5), 2.5706, 1e-4);
    EXPECT_NEAR(student_t95(10), 2.2281, 1e-4);
    EXPECT_NEAR(student_t95(47), 2.0117, 1e-4);
    EXPECT_NEAR(student_two_sided(1, 1), 0.5, 1e-12);
    EXPECT_NEAR(student_two_sided(2, 2), 0.1835034, 1e-6);
}

TEST(Spread, IsStudentsWithNMinusOneDegrees) {
    // The mean of six values: resamples spread by sqrt(5 / 6) of its standard error.
    const std::vector<double> values = {1, 2, 3, 4, 5, 6};
    const auto spread = bootstrap_spread(3.5, 6, [&](std::span<const std::uint32_t> drawn) {
        double sum = -21;  // around zero, the values are used and not their logarithms
        for (std::size_t i = 0; i < values.size(); ++i) sum += drawn[i] * values[i];
        return std::optional(sum / 6);
    });
    ASSERT_TRUE(spread);
    EXPECT_FALSE(spread->is_logarithmic);
    EXPECT_NEAR(spread->error, std::sqrt(3.5 / 6), 0.05);
    const Interval interval = spread->interval(0);
    EXPECT_NEAR(interval.high, 2.5706 * spread->error, 1e-3);
    EXPECT_DOUBLE_EQ(interval.low, -interval.high);
    // The test agrees with the interval at its end points.
    EXPECT_NEAR(spread->p_value(0, interval.high), 0.05, 1e-6);
    EXPECT_FALSE(bootstrap_spread(1, 5, [](auto) { return std::optional(1.0); }));
}

TEST(MedianInterval, SameSeedSameInterval) {
    std::vector<double> x;
    std::vector<std::uint32_t> unit;
    Rng rng(1);
    for (std::uint32_t i = 0; i < 100; ++i) {
        x.push_back(rng.uniform());
        unit.push_back(i / 10);
    }
    const auto a = median_interval(x, unit, 10), b = median_interval(x, unit, 10);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->low, b->low);
    EXPECT_EQ(a->high, b->high);
    EXPECT_LT(a->low, a->high);
    for (std::uint32_t& one : unit) one /= 2;
    EXPECT_FALSE(median_interval(x, unit, 5));  // no interval below six units
}

TEST(Warmup, IsFoundWhereLeadingStepsAreSlower) {
    Rng rng(5);
    std::vector<TimeNs> ns;
    for (int i = 0; i < 300; ++i)
        ns.push_back(static_cast<TimeNs>(1'000'000 * (i < 30 ? 1.6 : 1.0) + 30'000 * gauss(rng)));
    const std::size_t cut = detect_warmup(ns);
    EXPECT_GE(cut, 25u);
    EXPECT_LE(cut, 40u);
}

TEST(Warmup, IsNotSeenInNoiseNorInAFewSteps) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Rng rng(seed);
        std::vector<TimeNs> ns;
        for (int i = 0; i < 300; ++i) ns.push_back(static_cast<TimeNs>(1'000'000 + 100'000 * gauss(rng)));
        EXPECT_EQ(detect_warmup(ns), 0u) << seed;
    }
    EXPECT_EQ(detect_warmup(std::vector<TimeNs>(40, 5)), 0u);
    std::vector<TimeNs> slower_later(200, 1000);
    std::fill(slower_later.begin() + 20, slower_later.end(), 2000);
    EXPECT_EQ(detect_warmup(slower_later), 0u);
}

/// Makes 200 steps of 1000 ns with `per_step` rounds each; the prompts take turns.
Snapshot make_steps(int prompts, int per_step) {
    CaptureBuilder builder;
    for (int p = 0; p < prompts; ++p) builder.prompt();
    Rng rng(2);
    for (int i = 0; i < 200; ++i) {
        StepRecord step;
        const TimeNs now = i * 1000, verify = 600 + static_cast<TimeNs>(rng.below(100));
        step.step.start_ns = now;
        step.step.end_ns = now + 1000;
        step.spans = {span(2, now, now + 200), span(10, now + 200, now + 200 + verify)};
        for (int r = 0; r < per_step; ++r) {
            step.rounds.push_back(round_of(2 + i % 2));
            step.rounds.back().round.prompt_id = 1 + (i + r) % prompts;
        }
        builder.step(step);
    }
    return builder.snapshot();
}

TEST(RunStatistics, OneConversationHasNoIntervalHoweverManySteps) {
    const RunStatistics s = run_statistics(make_steps(1, 1), 1);
    EXPECT_EQ(s.conversations, 1u);
    EXPECT_EQ(s.step_ns.n, 200);
    EXPECT_DOUBLE_EQ(s.tau->value, 2.5);
    EXPECT_FALSE(s.step_interval || s.tau->interval || s.tokens_per_second->interval);
    for (const PhaseStatistics& phase : s.phases) EXPECT_FALSE(phase.median_interval || phase.share_interval);
    EXPECT_EQ(interval_text(s.conversations), "1 conversation: intervals need at least 6");
}

TEST(RunStatistics, ConversationsAreResampledInABatchToo) {
    for (const int per_step : {1, 3}) {
        const RunStatistics s = run_statistics(make_steps(7, per_step), 1);
        EXPECT_EQ(s.conversations, 7u);
        EXPECT_DOUBLE_EQ(s.step_ns.median, 1000);
        ASSERT_TRUE(s.tau && s.tau->interval);
        EXPECT_DOUBLE_EQ(s.tau->value, 2.5);
        EXPECT_TRUE(s.tau->interval->contains(2.5));
        for (const PhaseStatistics& phase : s.phases) {
            if (phase.phase_id != 10) continue;
            EXPECT_EQ(phase.ns.n, 200);
            ASSERT_TRUE(phase.median_interval && phase.share_interval);
            EXPECT_TRUE(phase.median_interval->contains(phase.ns.median));
            EXPECT_TRUE(phase.share_interval->contains(phase.share));
            EXPECT_NEAR(phase.share, 0.65, 0.02);
        }
    }
}

TEST(RunStatistics, EqualsTheViewsNumbers) {
    CaptureBuilder builder;
    TimeNs now = 0;
    Rng rng(2);
    for (int i = 0; i < 60; ++i) {
        builder.step(now, now + 1000,
                     {span(2, now, now + 100 + rng.below(300)), span(4, now + 500, now + 700)}, round_of(1),
                     i % 9 == 0 ? Excluded::warmup : Excluded::no);
        now += 1000;
    }
    const Snapshot snapshot = builder.snapshot();
    const RunStatistics s = run_statistics(snapshot, 1);
    const std::vector<PhaseStats> view = phase_stats(snapshot, 1);
    ASSERT_EQ(s.phases.size(), view.size());
    for (std::size_t i = 0; i < view.size(); ++i) {
        EXPECT_EQ(s.phases[i].phase_id, view[i].phase_id);
        EXPECT_EQ(s.phases[i].ns.n, view[i].count);
        EXPECT_DOUBLE_EQ(s.phases[i].ns.median, view[i].median_ns);
        EXPECT_EQ(s.phases[i].ns.p90.has_value(), view[i].p90_ns.has_value());
        EXPECT_DOUBLE_EQ(s.phases[i].share, view[i].share);
    }
}

TEST(RunSamples, IncrementalUpdatesMatchOneRead) {
    CaptureBuilder builder;
    RunSamples growing;
    TimeNs now = 0;
    Rng rng(9);
    for (int i = 0; i < 80; ++i) {
        builder.step(now, now + 1000,
                     {span(2, now, now + 100 + rng.below(300)), span(4, now + 500, now + 700)}, round_of(1),
                     rng.below(5) == 0 ? Excluded::warmup : Excluded::no);
        now += 1000;
        if (rng.below(3) == 0 && i > 2) {  // device work of an earlier step arrives
            SpansRecorded late;
            late.spans = {span(10, now - 2300, now - 2100)};
            late.spans[0].step_id = i - 1;
            late.spans[0].run_id = 1;
            builder.add(late);
        }
        if (rng.below(2) == 0) growing.update(builder.snapshot(), 1);
    }
    growing.update(builder.snapshot(), 1);
    RunSamples whole;
    whole.update(builder.snapshot(), 1);
    EXPECT_EQ(growing.steps(), whole.steps());
    EXPECT_EQ(growing.sampled_ns(), whole.sampled_ns());
    for (int phase = 0; phase < max_phases; ++phase) {
        ASSERT_EQ(growing.phase_samples(phase).size(), whole.phase_samples(phase).size()) << phase;
        for (std::size_t i = 0; i < whole.phase_samples(phase).size(); ++i) {
            EXPECT_EQ(growing.phase_samples(phase)[i].step, whole.phase_samples(phase)[i].step);
            EXPECT_EQ(growing.phase_samples(phase)[i].busy_ns, whole.phase_samples(phase)[i].busy_ns);
            EXPECT_EQ(growing.phase_samples(phase)[i].exposed_ns, whole.phase_samples(phase)[i].exposed_ns);
        }
    }
    CaptureBuilder other;
    other.step(0, 10, {span(2, 0, 5)});
    growing.update(other.snapshot(), 1);
    EXPECT_EQ(growing.steps().size(), 1u);
}

}  // namespace
}  // namespace draftscope
