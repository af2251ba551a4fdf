#include "app/gui/models/sweep.h"

#include <gtest/gtest.h>

#include <set>

#include "app/gui/models/cached_model.h"
#include "tests/gui/synthetic_sweep.h"

namespace draftscope {
namespace {

class SweepModel : public ::testing::Test {
  protected:
    const std::shared_ptr<const SweepReport> view_ = test::synthetic_sweep();
    const SweepSettings settings_ = view_->settings;
};

TEST_F(SweepModel, ListsTheParametersThatVary) {
    EXPECT_EQ(sweep_batches(settings_), (std::vector<int>{1, 4}));
    std::vector<std::string> names;
    for (const SweepParameter& one : sweep_parameters(settings_, 1)) names.push_back(one.name);
    EXPECT_EQ(names, (std::vector<std::string>{"rank", "v", "levels", "nodes", "top-k"}));
    EXPECT_EQ(sweep_parameters(settings_, 1)[1].values, (std::vector<double>{1024, 4096, 16384}));
    EXPECT_TRUE(sweep_parameters(settings_, 2).empty());
    SweepSetting setting;
    setting.head = "dynaspec:k=32,file=a.safetensors+rdk";
    EXPECT_EQ(parameter_value(setting, "k"), 32);
    EXPECT_EQ(parameter_value(setting, "file"), std::nullopt);
    EXPECT_EQ(parameter_value(setting, "levels"), 1);
}

TEST_F(SweepModel, CurvesTakeTheFastestOrTheSelectedSettings) {
    const std::vector<SweepCurve> best = sweep_curves(settings_, "v", {1, std::nullopt});
    ASSERT_EQ(best.size(), 1u);
    EXPECT_EQ(best[0].name, "eagle3 x fr-spec");
    ASSERT_EQ(best[0].points.size(), 3u);
    for (const auto& [value, row] : best[0].points)
        for (std::size_t r = 0; r < settings_.size(); ++r) {
            if (settings_[r].batch != 1 || parameter_value(settings_[r], "v") != value) continue;
            EXPECT_GE(settings_[row].figures.speedup.value, settings_[r].figures.speedup.value);
        }
    // Along the nodes with the other parameters of a tree, a curve for each head.
    std::size_t like = 0;
    while (settings_[like].tree != "depth=2,topk=2,nodes=6" || settings_[like].batch != 1) ++like;
    const std::vector<SweepCurve> nodes = sweep_curves(settings_, "nodes", {1, like});
    EXPECT_EQ(nodes.size(), 7u);
    for (const SweepCurve& curve : nodes) {
        ASSERT_EQ(curve.points.size(), 2u) << curve.name;
        EXPECT_EQ(curve.points[0].first, 6);
        EXPECT_EQ(curve.points[1].first, 9);
    }
    EXPECT_EQ(sweep_curves(settings_, "nodes", {1, like, true}).size(), 3u)
        << "the fastest size of each head";
    // Chains grow in nodes as they grow in levels.
    while (settings_[like].tree != "chain=1" || settings_[like].batch != 1) ++like;
    EXPECT_EQ(sweep_curves(settings_, "levels", {1, like}).front().points.size(), 3u);
}

TEST_F(SweepModel, FilesOfAHeadAreItsSizes) {
    std::vector<SweepSetting> settings = {view_->settings[0], view_->settings[0]};
    settings[0].head = "slimspec:file=/heads/r36.safetensors,rank=36";
    settings[1].head = "slimspec:file=/heads/r72.safetensors,rank=72";
    rank_settings(settings);
    const std::vector<SweepCurve> ranks = sweep_curves(settings, "rank", {1, 0});
    ASSERT_EQ(ranks.size(), 1u);
    EXPECT_EQ(ranks[0].points.size(), 2u) << "the file is no parameter of its own";
    for (SweepSetting& one : settings) one.drafter = "eagle3:path/to/checkpoint";
    std::set<std::string> names;
    for (const SweepCurve& curve : sweep_curves(settings, "levels", {1, std::nullopt}))
        names.insert(curve.name);
    EXPECT_EQ(names, (std::set<std::string>{"eagle3:checkpoint x slimspec:file=r36.safetensors,rank=36",
                                            "eagle3:checkpoint x slimspec:file=r72.safetensors,rank=72"}));
    settings[1].head = "slimspec:file=/other/r36.safetensors,rank=36";
    EXPECT_EQ(sweep_curves(settings, "levels", {1, std::nullopt}).size(), 2u) << "of equal names";
}

TEST_F(SweepModel, OraclesAreTheHighestOfEachDrafter) {
    const std::vector<SweepCurve> curves = sweep_curves(settings_, "v", {1, std::nullopt});
    const std::vector<SweepOracleLine> speed = sweep_oracle_lines(settings_, view_->oracles, curves, true);
    ASSERT_EQ(speed.size(), 1u) << "of the drafter of the curves alone";
    EXPECT_EQ(speed[0].name, "oracle of eagle3 x fr-spec:v=4096");
    EXPECT_EQ(speed[0].head, "fr-spec:v=4096");
    EXPECT_DOUBLE_EQ(speed[0].value, 1.9);
    const std::vector<SweepOracleLine> tau = sweep_oracle_lines(settings_, view_->oracles, curves, false);
    ASSERT_EQ(tau.size(), 1u);
    EXPECT_EQ(tau[0].name, "oracle of eagle3 x full");
    EXPECT_EQ(tau[0].value, 4);
    EXPECT_EQ(build_sweep_curves(settings_, view_->oracles, "v", {1, std::nullopt}).values,
              (std::vector<double>{1024, 4096, 16384}));
    // The name stands at the end that the curve leaves free.
    const auto distance = [&](const std::pair<double, std::size_t>& point) {
        return std::abs(settings_[point.second].figures.tau.value - tau[0].value);
    };
    EXPECT_EQ(tau[0].name_at_right, distance(curves[0].points.back()) > distance(curves[0].points.front()));
    EXPECT_EQ(sweep_oracle_lines(settings_, view_->oracles, sweep_curves(settings_, "v", {4, std::nullopt}),
                                 true)[0]
                  .value,
              1.7);
    EXPECT_TRUE(sweep_oracle_lines(settings_, {}, curves, true).empty()) << "none is known";
}

TEST(CachedModel, IsBuiltAgainForAnotherKeyAlone) {
    CachedModel<int, std::pair<int, std::string>> model;
    int built = 0;
    const auto get = [&](int batch, const std::string& name) {
        return model.get({batch, name}, [&] { return ++built; });
    };
    EXPECT_EQ(get(1, "v"), 1);
    EXPECT_EQ(get(1, "v"), 1);
    EXPECT_EQ(get(1, "rank"), 2);
    EXPECT_EQ(get(4, "rank"), 3);
    EXPECT_EQ(get(4, "rank"), 3);
}

TEST_F(SweepModel, HeatMapHasTheFastestOfEachPair) {
    const SweepHeatMap map = sweep_heat_map(settings_, "nodes", "rank", 1);
    EXPECT_EQ(map.ys, (std::vector<double>{36, 72, 144}));
    EXPECT_EQ(map.xs.size(), 6u);
    ASSERT_EQ(map.rows.size(), 18u);
    for (std::size_t cell = 0; cell < map.rows.size(); ++cell) {
        ASSERT_TRUE(map.rows[cell].has_value());
        const SweepSetting& setting = settings_[*map.rows[cell]];
        EXPECT_EQ(setting.batch, 1);
        EXPECT_EQ(parameter_value(setting, "rank"), map.ys[cell / 6]);
        EXPECT_EQ(setting.shape.nodes, map.xs[cell % 6]);
        EXPECT_GE(settings_[*map.rows[cell]].figures.speedup.value, map.low);
        EXPECT_LE(settings_[*map.rows[cell]].figures.speedup.value, map.high);
    }
    EXPECT_TRUE(sweep_heat_map(settings_, "rank", "v", 1).rows.empty()) << "no head has both";
}

TEST_F(SweepModel, FrontRisesWithTheTimeOfARound) {
    const std::vector<std::size_t> front = sweep_front(settings_, 1);
    ASSERT_GT(front.size(), 1u);
    for (std::size_t i = 1; i < front.size(); ++i) {
        EXPECT_LE(settings_[front[i - 1]].round_ms, settings_[front[i]].round_ms);
        EXPECT_LE(settings_[front[i - 1]].figures.tau.value, settings_[front[i]].figures.tau.value);
    }
}

TEST_F(SweepModel, DescribesASettingWithItsLimits) {
    std::vector<SweepSetting> settings;
    for (const SweepSetting& one : view_->settings)
        if (setting_name(one) == "eagle3 x full @ chain=1") settings = {one};
    ASSERT_EQ(settings.size(), 1u);
    settings[0].exact = false;
    settings[0].extrapolated = true;
    rank_settings(settings);
    std::string all;
    for (const auto& [label, value] : describe_setting(settings[0])) all += label + " " + value + "\n";
    for (const char* part : {"tau 1.", "[", "x AR ", "acceptance an estimate", "cost outside"})
        EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
}

TEST(FittingLabels, TheLastStaysAndOthersGiveWay) {
    const std::vector<float> places = {0, 30, 34, 60}, widths = {10, 10, 10, 10};
    EXPECT_EQ(fitting_labels(places, widths, 2), (std::vector<bool>{true, false, true, true}));
    EXPECT_EQ(fitting_labels(places, std::vector<float>{10, 10, 10, 80}, 2),
              (std::vector<bool>{true, false, false, true}));
    EXPECT_TRUE(fitting_labels({}, {}, 2).empty());
}

}  // namespace
}  // namespace draftscope
