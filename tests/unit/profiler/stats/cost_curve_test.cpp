#include "profiler/stats/cost_curve.h"

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
