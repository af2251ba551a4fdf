#include "app/gui/models/plane.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;

double between(double low, double high) {
    return low + (high - low) * (*rc::gen::inRange(0, 10001) / 10000.0);
}

RC_GTEST_PROP(PlaneLines, EveryPointOfALineHasItsSpeedup, ()) {
    const double kappa = between(0, 4);
    const PlaneWindow window{between(0, 0.4), between(0.5, 2), between(0.1, 0.7), between(0.8, 1.6)};
    const std::vector<IsoLine> lines = iso_lines(kappa, window);
    RC_ASSERT(lines.size() <= 12u);
    for (const IsoLine& line : lines) {
        for (const double at : {0.0, 0.37, 1.0}) {
            const double nu = line.nu[0] + at * (line.nu[1] - line.nu[0]);
            const double rho = line.rho[0] + at * (line.rho[1] - line.rho[0]);
            RC_ASSERT(std::abs(predicted_speedup(rho, nu, kappa) - line.speedup) < 1e-9);
        }
        RC_ASSERT(line.nu[0] >= window.nu_min - 1e-9 && line.nu[1] <= window.nu_max + 1e-9);
        RC_ASSERT(line.rho[0] >= window.rho_min - 1e-9 && line.rho[1] <= window.rho_max + 1e-9);
    }
    // The break-even line is included if it crosses the window.
    const double low = iso_rho_tau(1, window.nu_min, kappa), high = iso_rho_tau(1, window.nu_max, kappa);
    if (low > window.rho_min && high < window.rho_max)
        RC_ASSERT(std::any_of(lines.begin(), lines.end(),
                              [](const IsoLine& line) { return std::abs(line.speedup - 1) < 1e-9; }));
}

TEST(PlaneLines, TheFullHeadBreaksEven) {
    for (const double kappa : {0.0, 0.25, 1.0, 3.0}) EXPECT_DOUBLE_EQ(predicted_speedup(1, 1, kappa), 1);
    EXPECT_NEAR(predicted_speedup(0.99, 0.21, 0.25), 1.1758, 1e-4);
    EXPECT_TRUE(iso_lines(0.25, {1, 1, 0.5, 1}).empty());
}

HeadEvalRow eval(std::string head, HeadMode mode, int committed, TimeNs ns) {
    HeadEvalRow row;
    row.head = std::move(head);
    row.mode = mode;
    row.committed = committed;
    row.head_ns = ns;
    return row;
}

TEST(Plane, PlacesTheDrivingHeadAgainstSelfPacedFull) {
    CaptureBuilder built;
    for (int i = 0; i < 6; ++i) built.prompt();
    for (int i = 0; i < 24; ++i) {
        RoundRecord round;
        round.round.prompt_id = 1 + i % 6;
        round.head_evals = {eval("slimspec:rank=72", HeadMode::drive, 3, 100),
                            eval("full", HeadMode::selfpaced, 4, 400)};
        built.step(i * 1000, i * 1000 + 900, {}, round);
    }
    const PlaneModel model = build_plane(built.snapshot(), 1);
    EXPECT_EQ(model.missing_text, "");
    ASSERT_EQ(model.points.size(), 2u);
    const PlanePoint& live = model.points.back();
    EXPECT_EQ(live.head, "slimspec:rank=72");
    EXPECT_DOUBLE_EQ(live.rho_tau, 0.75);
    EXPECT_DOUBLE_EQ(live.nu, 0.25);
    EXPECT_FALSE(live.estimate);
    EXPECT_TRUE(live.rho_interval.has_value());
    EXPECT_TRUE(model.points.front().reference);
    ASSERT_TRUE(model.kappa.has_value());
    EXPECT_DOUBLE_EQ(*model.kappa, 400.0 / (900 - 100));
    EXPECT_DOUBLE_EQ(live.predicted.value, predicted_speedup(0.75, 0.25, 0.5));
    EXPECT_THAT(model.interval_text, HasSubstr("bootstrap by conversation (6 of them"));
}

/// An ended run over six conversations: a head against the self-paced full head, which takes `full_ns`.
void add_ended_run(CaptureBuilder& built, const std::string& head, TimeNs full_ns) {
    RunRow row;
    row.target = "tiny";
    row.drafter = "eagle3";
    row.head = head;
    row.tree = "chain=3";
    const RowId id = built.run(row);
    for (int i = 0; i < 6; ++i) {
        built.prompt();
        for (int r = 0; r < 4; ++r) {
            RoundRecord round;
            round.head_evals = {eval(head, HeadMode::drive, 3, 100),
                                eval("full", HeadMode::selfpaced, 4, full_ns)};
            const TimeNs at = (4 * i + r) * 1000;
            built.step(at, at + 900, {}, round);
        }
    }
    built.add(RunEnded{id, RunEnd::ok, 0, {}});
}

TEST(Plane, HasTheHeadsOfOtherRunsAndCaptures) {
    CaptureBuilder built, second;
    add_ended_run(built, "slimspec:rank=72", 400);
    add_ended_run(built, "fr-spec:v=4", 400);
    add_ended_run(built, "fr-spec:v=8", 600);
    add_ended_run(second, "fr-spec:v=16", 400);
    const Snapshot snapshot = built.snapshot();
    const auto other = std::make_shared<Snapshot>(second.snapshot());
    other->source = "/captures/other.dscope";
    PlaneModel model = build_plane(snapshot, 1);
    PlaneOthers others;
    others.add(model, snapshot, 1, {other, nullptr});
    ASSERT_EQ(model.points.size(), 5u);
    EXPECT_EQ(model.points[0].label, "fr-spec:v=8 (run 3)");
    EXPECT_EQ(model.points[0].run, "this window: run 3, tiny, eagle3, chain=3");
    EXPECT_DOUBLE_EQ(model.points[0].kappa, 600.0 / 800);
    EXPECT_FALSE(model.points[0].at_shown_kappa) << "the lines are the first run's";
    EXPECT_DOUBLE_EQ(model.points[0].predicted.value, predicted_speedup(0.75, 100.0 / 600, 600.0 / 800));
    EXPECT_TRUE(model.points[0].rho_interval && model.points[0].nu_interval);
    EXPECT_EQ(model.points[1].label, "fr-spec:v=4 (run 2)");
    EXPECT_TRUE(model.points[1].at_shown_kappa);
    EXPECT_EQ(model.points[2].label, "fr-spec:v=16 (other.dscope, run 1)");
    EXPECT_TRUE(model.points[3].reference);
    EXPECT_EQ(model.points[4].head, "slimspec:rank=72") << "the driving head is last";
    EXPECT_EQ(model.points[4].run, "");
    EXPECT_EQ(model.others_text,
              "3 points of other runs; pale: another kappa, so the lines do not hold for it");
    EXPECT_TRUE(model.bars.back().other_run);
    // The shown run is no other run, wherever it is.
    PlaneModel alone = build_plane(*other, 1);
    others.add(alone, *other, 1, {});
    EXPECT_EQ(alone.points.size(), 2u);
    EXPECT_EQ(alone.others_text, "");
}

TEST(Plane, OtherRunsAreLimitedToTheNewest) {
    CaptureBuilder built;
    for (std::size_t i = 0; i < PlaneOthers::max_runs + 3; ++i) add_ended_run(built, "fr-spec:v=4", 400);
    const Snapshot snapshot = built.snapshot();
    PlaneModel model = build_plane(snapshot, snapshot.runs.back().id);
    PlaneOthers others;
    others.add(model, snapshot, snapshot.runs.back().id, {});
    EXPECT_EQ(model.points.size(), PlaneOthers::max_runs + 2);
    EXPECT_EQ(model.points[0].label, "fr-spec:v=4 (run 14)");
    EXPECT_THAT(model.others_text, HasSubstr("2 older runs not shown"));
}

NodeRow drafted(int number, int parent, int depth, double q, double p, bool accepted = false) {
    NodeRow row = testing::node(number, parent, depth, 10 + number, q, accepted);
    row.target_prob = static_cast<float>(p);
    return row;
}

/// Two drafts of the root, of which the first was accepted, and one draft below each.
RoundRecord round_with_tree() {
    RoundRecord round;
    round.round.tree_nodes = 5;
    round.round.tree_depth = 2;
    round.nodes = {testing::node(0, -1, 0, 1, 1), drafted(1, 0, 1, 0.5, 0.6, true),
                   drafted(2, 0, 1, 0.3, 0.2), drafted(3, 1, 2, 0.9, 0.7), drafted(4, 2, 2, 0.8, 0.1)};
    round.head_evals = {eval("slimspec:rank=72", HeadMode::drive, 2, 100),
                        eval("full", HeadMode::selfpaced, 2, 400)};
    return round;
}

/// Root: 0.5 + 0.2, with 0.2 left. Accepted draft: 0.7, with 0.1 left. The rejected draft does not count.
TEST(Plane, AlphaIsBoundedByTheRecordedDrafts) {
    CaptureBuilder built;
    built.step(0, 900, {}, round_with_tree());
    const Snapshot snapshot = built.snapshot();
    const auto alpha = recorded_alpha(snapshot, snapshot.runs[0]);
    ASSERT_TRUE(alpha.has_value());
    EXPECT_EQ(alpha->positions, 2);
    EXPECT_EQ(alpha->drafts, 2);
    EXPECT_FALSE(alpha->chains);
    EXPECT_NEAR(alpha->low, 0.7, 1e-6);
    EXPECT_NEAR(alpha->high, (0.9 + 0.8) / 2, 1e-6);
    const PlaneModel model = build_plane(snapshot, 1);
    ASSERT_EQ(model.points.size(), 2u);
    EXPECT_EQ(model.points.front().alpha_text, "");
    EXPECT_EQ(model.points.back().alpha_text,
              "alpha 0.70 to 0.85 by the recorded drafts; a chain of 2 has 2.19 to 2.57 tokens by DynaSpec's "
              "eq. 1");
    RunRow warm = snapshot.runs[0];
    warm.temperature = 0.5;
    EXPECT_FALSE(recorded_alpha(snapshot, warm).has_value());
    EXPECT_FALSE(recorded_alpha(Snapshot(), snapshot.runs[0]).has_value());
}

/// Eq. 2 divides eq. 1's tokens by the same time as the measured speed-up divides tau by.
TEST(Plane, AlphaOfChainsGivesTheSpeedupOfEquationTwo) {
    const AlphaBounds alpha{0.5, 0.5, 100, 3, true};
    EXPECT_EQ(
        alpha_text(alpha, 2.5, 1.4),
        "alpha 0.50 by the recorded drafts; a chain of 3 has 1.88 tokens by DynaSpec's eq. 1, x 1.05 AR by "
        "eq. 2");
    EXPECT_THAT(alpha_text(alpha, 2.5, 0), ::testing::Not(HasSubstr("eq. 2")));
    EXPECT_THAT(alpha_text({0.5, 0.5, 100, 3, false}, 2.5, 1.4), ::testing::Not(HasSubstr("eq. 2")));
}

TEST(Plane, FullHeadAloneRequestsNoMoreRounds) {
    CaptureBuilder built;
    RoundRecord round;
    round.head_evals = {eval("full", HeadMode::drive, 3, 100)};
    built.step(0, 900, {}, round);
    const PlaneModel alone = build_plane(built.snapshot(), 1);
    ASSERT_EQ(alone.points.size(), 1u);
    EXPECT_THAT(alone.interval_text, HasSubstr("by definition"));
    round.head_evals.push_back(eval("slimspec:rank=72", HeadMode::selfpaced, 2, 50));
    built.step(1000, 1900, {}, round);
    EXPECT_THAT(build_plane(built.snapshot(), 1).interval_text,
                HasSubstr("no error bars: 1 conversation: intervals need at least 6"));
}

/// Calibration gives a point from six conversations on. Its rounds, a few of each text, have no tau.
TEST(Plane, CalibrationOfFewConversationsIsNoPoint) {
    CaptureBuilder built;
    TimeNs now = 0;
    for (int c = 0; c < 6; ++c) {
        PromptRow prompt;
        prompt.ordinal = c;
        prompt.external_id = std::to_string(c);
        built.prompt(prompt);
        for (const int committed : {2, 5}) {
            RoundRecord round;
            round.round.committed = committed;
            round.head_evals = {eval("fr-spec:v=4", HeadMode::drive, committed, 100)};
            if (committed == 2) round.head_evals.push_back(eval("full", HeadMode::calibration, 2, 400));
            built.step(now, now + 900, {}, round);
            now += 1000;
        }
        const PlaneModel model = build_plane(built.snapshot(), 1);
        EXPECT_TRUE(model.kappa.has_value());
        ASSERT_EQ(model.bars.size(), 1u);
        EXPECT_DOUBLE_EQ(model.bars[0].tau, 1);  // unclipped: no draft is accepted here
        EXPECT_EQ(model.bars[0].predicted.has_value(), c == 5);
        EXPECT_EQ(model.points.size(), c == 5 ? 2u : 0u);
        EXPECT_EQ(model.missing_text.empty(), c == 5) << model.missing_text;
        if (c == 4) {
            EXPECT_THAT(model.missing_text, HasSubstr("calibration rounds in 5 conversations are too few"));
        }
    }
    const PlaneModel model = build_plane(built.snapshot(), 1);
    EXPECT_DOUBLE_EQ(model.points.front().tau, 0);
    EXPECT_DOUBLE_EQ(model.points.back().tau, 3.5);
    EXPECT_DOUBLE_EQ(model.points.back().rho_tau, 1);
    EXPECT_TRUE(model.points.back().estimate);
}

TEST(Plane, ExplainsAMissingReference) {
    EXPECT_THAT(build_plane(Snapshot(), 0).missing_text, HasSubstr("No run yet"));
    CaptureBuilder plain;
    RunRow row;
    row.drafter = "none";
    plain.run(row);
    EXPECT_THAT(build_plane(plain.snapshot(), 1).missing_text, HasSubstr("no LM head"));
    CaptureBuilder built;
    RoundRecord round;
    round.head_evals = {eval("fr-spec:v=4", HeadMode::drive, 3, 100)};
    built.step(0, 900, {}, round);
    const PlaneModel model = build_plane(built.snapshot(), 1);
    EXPECT_TRUE(model.points.empty());
    EXPECT_THAT(model.missing_text, HasSubstr("calibration rounds with the full head"));
    ASSERT_EQ(model.bars.size(), 1u);
    EXPECT_DOUBLE_EQ(model.bars[0].tau, 1);  // unclipped: no draft is accepted here
}

PlanePoint point_at(double nu, double rho_tau) {
    PlanePoint point;
    point.nu = nu;
    point.rho_tau = rho_tau;
    return point;
}

RC_GTEST_PROP(PlaneAxes, ContainEveryPointWithItsMark, ()) {
    std::vector<PlanePoint> points;
    const int count = *rc::gen::inRange(1, 6);
    for (int i = 0; i < count; ++i) points.push_back(point_at(between(0, 2.5), between(0, 1.6)));
    const double nu_margin = between(0, 0.12), rho_margin = between(0, 0.12);
    const PlaneWindow window = fit_window(points, nu_margin, rho_margin);
    RC_ASSERT(contains_points(window, points, nu_margin, rho_margin));
    RC_ASSERT(window.nu_min <= 0 && window.nu_max >= 1.1);
}

TEST(PlaneAxes, DetectALaterHeadOutside) {
    const std::vector<PlanePoint> first = {point_at(1, 1), point_at(0.4, 0.93)};
    const PlaneWindow window = fit_window(first, 0.04, 0.04);
    EXPECT_TRUE(contains_points(window, first, 0.04, 0.04));
    for (const PlanePoint& other : {point_at(0.3, 1.2), point_at(0, 0.9), point_at(2, 1), point_at(0.5, 0.5)})
        EXPECT_FALSE(contains_points(window, std::vector{other}, 0.04, 0.04))
            << other.nu << " " << other.rho_tau;
}

TEST(PlaneAxes, FollowThePointsUntilTheUserMovesThem) {
    PlaneView view;
    std::vector<PlanePoint> points = {point_at(1, 1), point_at(0.4, 0.9)};
    EXPECT_TRUE(view.follow(points, 0.04, 0.04, false)) << "first points";
    view.show(view.window(), points);
    EXPECT_FALSE(view.follow(points, 0.04, 0.04, false));
    points.back() = point_at(0.3, 1.2);
    EXPECT_TRUE(view.follow(points, 0.04, 0.04, false)) << "the driving head left the axes";
    EXPECT_TRUE(contains_points(view.window(), points, 0.04, 0.04));
    const PlaneWindow moved{0.1, 0.9, 1.1, 1.3};
    view.show(moved, points);
    EXPECT_FALSE(view.follow(points, 0.04, 0.04, false)) << "the user's view is kept";
    points.back() = point_at(0.3, 0.9);
    EXPECT_TRUE(view.follow(points, 0.04, 0.04, false)) << "the driving head did not leave by itself";
    view.show(view.window(), points);
    view.show({0.5, 0.9, 0.6, 0.7}, points);
    EXPECT_FALSE(view.follow(points, 0.04, 0.04, false)) << "the user moved the view";
    EXPECT_TRUE(view.follow(points, 0.04, 0.04, true)) << "F fits the view";
}

TEST(Published, ResultsAtAnotherKappaAreMarked) {
    const auto results = published_results();
    const auto pair = std::find_if(results.begin(), results.end(),
                                   [](const PublishedResult& row) { return row.nu && row.rho_tau; });
    PlaneModel model;
    model.kappa_shown = 0.25;
    EXPECT_TRUE(is_at_shown_kappa(*pair, model));
    EXPECT_EQ(published_kappa_text(*pair, model), "");
    model.kappa = model.kappa_shown = 0.38;
    EXPECT_FALSE(is_at_shown_kappa(*pair, model));
    EXPECT_EQ(published_kappa_text(*pair, model), "paper: kappa 0.25; lines: this run's kappa 0.38");
}

TEST(Published, EveryPointLiesAtItsKappaOrSaysThatItDoesNot) {
    PlaneModel model;
    for (const double kappa : {0.02, 0.25, 0.38, 3.0}) {
        model.kappa = model.kappa_shown = kappa;
        for (const PublishedResult& result : published_results()) {
            if (!result.nu || !result.rho_tau) continue;
            ASSERT_TRUE(result.kappa) << published_label(result);
            const std::string text = published_kappa_text(result, model);
            EXPECT_THAT(describe_published(result)[1], HasSubstr(fmt::format("kappa {:.2f}", *result.kappa)));
            if (std::abs(*result.kappa - kappa) < 0.005) {
                EXPECT_EQ(text, "");
            } else {
                EXPECT_THAT(text, HasSubstr(fmt::format("paper: kappa {:.2f}", *result.kappa)));
                EXPECT_THAT(text, HasSubstr(fmt::format("lines: this run's kappa {:.2f}", kappa)));
            }
        }
    }
    // Results of other targets, temperatures and batches were measured at a kappa that the paper does not
    // give.
    for (const PublishedResult& result : published_results())
        if (result.kappa) {
            EXPECT_EQ(result.target, "Llama-3.1-8B-Instruct");
        }
}

TEST(Published, ResultsThatAPaperDidNotMeasureSaySo) {
    int copied = 0;
    for (const PublishedResult& result : published_results()) {
        const bool from_another =
            result.short_name == "MicroSpec" && (result.head == "coral" || result.head == "dynaspec");
        const std::string kind = !from_another ? "measured" : result.tau ? "copied" : "computed";
        EXPECT_EQ(result.tau_kind, kind) << published_label(result);
        EXPECT_NE(result.head, "none") << "decoding without a drafter has no head";
        if (!from_another) continue;
        copied += result.tau ? 1 : 0;
        EXPECT_THAT(published_label(result), HasSubstr("(" + kind + ")"));
        EXPECT_FALSE(result.rho_tau) << "tau of two papers have no ratio";
        if (result.speedup_vs_ar) {
            EXPECT_THAT(describe_published(result)[2], HasSubstr("(computed)"));
        }
    }
    EXPECT_EQ(copied, 4);
}

TEST(LabelPlacer, TakesTheFirstFreePlaceInsideTheFrame) {
    const LabelBox frame{0, 0, 100, 100};
    LabelPlacer places(frame);
    places.take({40, 40, 60, 60});
    const auto first = places.place(boxes_around(50, 50, 12, 20, 10));
    ASSERT_TRUE(first.has_value());
    const auto second = places.place(boxes_around(50, 50, 12, 20, 10));
    ASSERT_TRUE(second.has_value());
    EXPECT_FALSE(first->overlaps(*second));
    for (const auto& box : {*first, *second}) {
        EXPECT_TRUE(box.inside(frame));
        EXPECT_FALSE(box.overlaps({40, 40, 60, 60}));
    }
    EXPECT_FALSE(places.place({{95, 0, 120, 10}}).has_value()) << "no label extends beyond the frame";
    const std::vector<LabelBox> taken = {{90, 45, 110, 55}, {42, 42, 58, 58}};
    EXPECT_FALSE(places.place(taken).has_value());
    ASSERT_TRUE(places.place(taken, true).has_value()) << "the driving head's name is always placed";
    EXPECT_EQ(places.place(taken, true)->left, 42);
}

TEST(Published, PairsAreFromOnePaperAndFollowItsModel) {
    int pairs = 0;
    for (const PublishedResult& result : published_results()) {
        EXPECT_FALSE(result.source.empty()) << result.paper;
        EXPECT_GE(result.tau.value_or(1), 1) << result.head;
        EXPECT_LT(result.tau.value_or(1), 8) << result.head;
        if (!result.nu || !result.rho_tau) continue;
        ++pairs;
        EXPECT_EQ(result.short_name, "SlimSpec");
        ASSERT_TRUE(result.kappa && result.speedup_vs_full);
        EXPECT_NEAR(predicted_speedup(*result.rho_tau, *result.nu, *result.kappa), *result.speedup_vs_full,
                    0.06)
            << result.head << " " << result.config;
    }
    EXPECT_EQ(pairs, 17);
}

TEST(Published, DerivedRatiosFollowFromTheTables) {
    for (const PublishedGroup& group : published_groups()) {
        const auto full = std::find_if(group.rows.begin(), group.rows.end(),
                                       [](const PublishedResult* row) { return row->head == "full"; });
        for (const PublishedResult* row : group.rows) {
            if (!row->rho_tau || !row->tau) continue;
            ASSERT_NE(full, group.rows.end()) << group.name;
            EXPECT_NEAR(*row->rho_tau, *row->tau / *(*full)->tau, 0.008) << group.name << " " << row->head;
            if (!row->derived.empty()) {
                EXPECT_THAT(describe_published(*row).back(), HasSubstr("derived: "));
            }
        }
    }
}

}  // namespace
}  // namespace draftscope
