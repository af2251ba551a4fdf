#include "stats/cost_curve.h"

#include <gtest/gtest.h>

#include <cmath>

namespace draftscope {
namespace {

using enum CostTerm;

CostPoint point(double rows, double context, double ms) {
    CostPoint made;
    made.at.rows = rows;
    made.at.context = context;
    made.ms = ms;
    return made;
}

double cost_of(const CostCurve& curve, CostTerm term) {
    for (const TermCost& one : curve.terms)
        if (one.term == term) return one.ms;
    return 0;
}

constexpr CostTerm row_terms[] = {fixed, row, row_over_4, row_over_16, cached, row_context};

TEST(CostCurve, RecoversPlantedCoefficients) {
    std::vector<CostPoint> points;
    for (const double context : {64.0, 256.0, 1024.0})
        for (const double rows : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0})
            points.push_back(point(rows, context, 5 + 0.3 * std::max(0.0, rows - 4) + 0.002 * context));
    const CostCurve curve = fit_curve(row_terms, points);
    EXPECT_EQ(curve.terms.size(), 3u);
    EXPECT_NEAR(cost_of(curve, fixed), 5, 1e-6);
    EXPECT_NEAR(cost_of(curve, row_over_4), 0.3, 1e-6);
    EXPECT_NEAR(cost_of(curve, cached), 0.002, 1e-8);
    EXPECT_LT(*curve.error, 1e-6);
    CostSizes sizes;
    sizes.rows = 12;
    sizes.context = 512;
    EXPECT_NEAR(curve.ms(sizes), 5 + 0.3 * 8 + 0.002 * 512, 1e-5);
}

TEST(CostCurve, SeparatesSizeRowsAndTheFirstLevelOfAHead) {
    std::vector<CostPoint> points;
    for (const double size : {512.0, 1024.0, 4096.0}) {
        for (const double rows : {1.0, 4.0, 8.0}) {
            for (const bool first : {false, true}) {
                CostPoint one =
                    point(rows, 0, 0.01 + 1e-4 * size + 2e-5 * size * rows + (first ? 3e-4 * size : 0));
                one.at.size = size;
                one.at.first_level = first;
                points.push_back(one);
            }
        }
    }
    constexpr CostTerm terms[] = {fixed, first_level, row, row_over_4, size, size_first_level, size_row};
    const CostCurve curve = fit_curve(terms, points);
    EXPECT_NEAR(cost_of(curve, fixed), 0.01, 1e-6);
    EXPECT_NEAR(cost_of(curve, CostTerm::size), 1e-4, 1e-8);
    EXPECT_NEAR(cost_of(curve, size_row), 2e-5, 1e-9);
    EXPECT_NEAR(cost_of(curve, size_first_level), 3e-4, 1e-8);
    EXPECT_EQ(cost_of(curve, first_level), 0);
}

TEST(CostCurve, ReportsTheErrorOfItsPoints) {
    // Times of 2 and 3 ms, each measured 10 % too high and too low. The fit takes harmonic means, 1 % below.
    const std::vector<CostPoint> points = {point(1, 0, 2.2), point(1, 0, 1.8), point(2, 0, 3.3),
                                           point(2, 0, 2.7)};
    constexpr CostTerm terms[] = {fixed, row};
    const CostCurve curve = fit_curve(terms, points);
    CostSizes sizes;
    EXPECT_NEAR(curve.ms(sizes), 1.98, 1e-9);
    sizes.rows = 2;
    EXPECT_NEAR(curve.ms(sizes), 2.97, 1e-9);
    EXPECT_NEAR(*curve.worst, 0.1, 1e-9);
    // Squared residuals over measured x fitted times; four points and two terms leave two degrees of freedom.
    const double squares = 2 * (0.22 * 0.22 / (2.2 * 1.98) + 0.18 * 0.18 / (1.8 * 1.98));
    EXPECT_NEAR(*curve.error, std::sqrt(squares / 2), 1e-9);
}

TEST(CostCurve, FitsBelowAndAboveCountAlike) {
    // Relative to the measured times alone, the short time would decide: 0.07 ms a row.
    const std::vector<CostPoint> points = {point(1, 0, 0.05), point(2, 0, 0.4), point(4, 0, 1),
                                           point(8, 0, 2)};
    constexpr CostTerm terms[] = {row};
    CostSizes sizes;
    sizes.rows = 8;
    const double ratio = fit_curve(terms, points).ms(sizes) / 8;
    // Slopes of 0.05, 0.2, 0.25 and 0.25 ms a row.
    EXPECT_NEAR(ratio, 4 / (1 / 0.05 + 1 / 0.2 + 1 / 0.25 + 1 / 0.25), 1e-6);
}

TEST(CostCurve, CoefficientsAreNeverNegative) {
    const std::vector<CostPoint> points = {point(1, 0, 4), point(2, 0, 3), point(4, 0, 2), point(8, 0, 1)};
    const CostCurve curve = fit_curve(row_terms, points);
    for (const TermCost& one : curve.terms) EXPECT_GT(one.ms, 0);
    EXPECT_EQ(cost_of(curve, row), 0);
}

TEST(CostCurve, ErrorIsUnknownWithoutMorePointsThanTerms) {
    const CostCurve one = fit_curve(row_terms, {point(3, 10, 2)});
    EXPECT_FALSE(one.error);
    CostSizes sizes;
    sizes.rows = 3;
    EXPECT_NEAR(one.ms(sizes), 2, 1e-9);
    const CostCurve none = fit_curve(row_terms, {point(3, 10, 0)});  // a time of 0 is no measurement
    EXPECT_TRUE(none.points.empty());
    EXPECT_FALSE(none.error);
    EXPECT_EQ(none.ms(sizes), 0);
}

CostSizes at_rows(double rows) {
    CostSizes sizes;
    sizes.rows = rows;
    return sizes;
}

TEST(CostCurve, AControlledPointIsARatioOfSums) {
    const ControlledTime times[] = {{10, 10}, {30, 20}, {20, 10}, {12, 20}};
    const CostPoint made = controlled_point(at_rows(3), times);
    EXPECT_DOUBLE_EQ(made.ms, 72.0 / 60);
    EXPECT_EQ(made.samples, 4);
    EXPECT_EQ(made.at.rows, 3);
    EXPECT_DOUBLE_EQ(made.spread, (2 - 1) / 1.5);
}

/// A machine that takes twice as long at the end of a profile as at its start. A verification of `rows` rows
/// and a control of one row are timed in turns.
class DriftingMachine {
  public:
    /// Returns the curve of sessions in `visits` passes, relative to the control or as medians of times.
    CostCurve measure(int visits, bool controlled) {
        constexpr double sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
        constexpr int steps = 12;
        std::vector<CostPoint> points;
        total_ = static_cast<double>(visits * std::size(sizes) * steps);
        done_ = 0;
        for (int visit = 0; visit < visits; ++visit)
            for (const double rows : sizes) {
                std::vector<ControlledTime> times;
                for (int s = 0; s < steps; ++s) {
                    const double control = 0.5 * (slowness(0) + slowness(1)) * true_ms(1);
                    times.push_back({slowness(0.5) * true_ms(rows), control});
                    ++done_;
                }
                points.push_back(controlled_point(at_rows(rows), times));
                if (!controlled) points.back().ms = times[steps / 2].ms;  // they ascend
            }
        return fit_curve(row_terms, std::move(points));
    }
    static double true_ms(double rows) { return 5 + 0.3 * rows; }

  private:
    double slowness(double later) const { return 1 + (done_ + later) / total_; }
    double total_ = 0, done_ = 0;
};

TEST(CostCurve, AControlCancelsTheDriftOfTheMachine) {
    DriftingMachine machine;
    const auto ratio_of = [](const CostCurve& curve, double rows) {
        return curve.ms(at_rows(rows)) / curve.ms(at_rows(1)) * DriftingMachine::true_ms(1) /
               DriftingMachine::true_ms(rows);
    };
    const CostCurve controlled = machine.measure(3, true), medians = machine.measure(1, false);
    for (const double rows : {3.0, 5.0, 12.0, 20.0, 32.0}) {
        EXPECT_NEAR(ratio_of(controlled, rows), 1, 0.01) << rows;
        EXPECT_GT(ratio_of(medians, rows), 1.1) << rows;
    }
    EXPECT_LT(controlled.point_error, 0.01);
}

/// Times that rise in a step, each measured three times, 2 % off.
TEST(CostCurve, RepetitionsTellNoiseFromMisfit) {
    const auto truth = [](double rows) { return rows < 10 ? 7 + 0.3 * rows : 11 + 0.35 * rows; };
    std::vector<CostPoint> points;
    int place = 0;
    for (const double rows : {1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0})
        for (int visit = 0; visit < 3; ++visit)
            points.push_back(
                point(rows, 0, truth(rows) * (1 + 0.02 * ((place++ * 7) % 5 - 2) / std::sqrt(2))));
    const CostCurve curve = fit_curve(row_terms, points);
    EXPECT_NEAR(curve.point_error, 0.02, 0.008);
    EXPECT_GT(curve.misfit, 0.04);
    for (const double rows : {1.0, 3.0, 8.0, 12.0, 32.0}) {
        EXPECT_NEAR(curve.ms(at_rows(rows)), truth(rows), 0.03 * truth(rows)) << rows;
        EXPECT_LT(curve.own_error(at_rows(rows)), 0.02) << rows;
    }
    // Between measured rows, where the step may be anywhere, the misfit is back.
    EXPECT_GT(curve.own_error(at_rows(10)), 0.7 * curve.misfit);
    double noise = 0;
    for (const double one : curve.noise(at_rows(1))) noise += one * one;
    EXPECT_LT(std::sqrt(noise), 0.01 * truth(1));

    // Without repetitions nothing is known of the noise, and the terms stand alone.
    std::vector<CostPoint> once;
    for (std::size_t p = 0; p < points.size(); p += 3) once.push_back(points[p]);
    const CostCurve sparse = fit_curve(row_terms, once);
    EXPECT_EQ(sparse.ms(at_rows(12)), sparse.sum_of_terms(at_rows(12)));
    EXPECT_EQ(sparse.own_error(at_rows(12)), *sparse.error);
}

/// Points that differ by chance alone: the fit averages them.
TEST(CostCurve, NoiseShrinksWithTheNumberOfPoints) {
    std::vector<CostPoint> points;
    for (int p = 0; p < 64; ++p) points.push_back(point(1 + p % 8, 0, 5 * (p / 8 % 2 == 0 ? 1.1 : 0.9)));
    const CostCurve curve = fit_curve(row_terms, points);
    EXPECT_NEAR(curve.point_error, 0.1, 0.02);
    EXPECT_LT(curve.misfit, 0.03);
    double noise = 0;
    for (const double one : curve.noise(at_rows(4))) noise += one * one;
    EXPECT_LT(std::sqrt(noise) / 5, 0.1 / std::sqrt(20));
    EXPECT_GT(std::sqrt(noise) / 5, 0.1 / std::sqrt(64) / 2);
}

TEST(CostCurve, CoversTheMeasuredSizes) {
    const CostCurve curve = fit_curve(row_terms, {point(1, 64, 2), point(8, 256, 4)});
    const auto covers = [&](double rows, double context) {
        CostSizes sizes;
        sizes.rows = rows;
        sizes.context = context;
        return curve.covers(sizes);
    };
    EXPECT_TRUE(covers(4, 100));
    EXPECT_FALSE(covers(9, 100));
    EXPECT_FALSE(covers(4, 300));
    EXPECT_TRUE(CostCurve().covers({}));
}

TEST(CostCurve, TermsHaveNames) {
    for (const CostTerm term : {fixed, first_level, sequence, row, row_over_4, row_over_16, cached,
                                row_context, node, size, size_first_level, size_row, verify})
        EXPECT_EQ(parse_cost_term(to_text(term)), term);
    EXPECT_FALSE(parse_cost_term("rows"));
}

}  // namespace
}  // namespace draftscope
