#include <gtest/gtest.h>

#include "app/gui/models/sweep.h"
#include "tests/gui/synthetic_sweep.h"

namespace draftscope {
namespace {

TEST(AdvisorModel, ListsTheSettingsOfAnAdviceOnce) {
    const auto view = test::synthetic_sweep();
    const SweepSettings settings = view->settings;
    const std::vector<AdviceLine> lines =
        advice_lines(settings, view->advice.choice.chosen, view->advice.choice.runner_up, view->usual);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].role, "advised, fastest");
    EXPECT_EQ(lines[0].row, 0u);
    EXPECT_EQ(lines[1].role, "runner-up");
    EXPECT_EQ(lines[1].row, 1u);
    EXPECT_EQ(lines[2].role, "full head, default");
    EXPECT_EQ(lines[2].row, *view->usual);
    EXPECT_EQ(settings[lines[2].row].tree, settings[0].tree);
    EXPECT_TRUE(advice_lines(settings, std::nullopt, std::nullopt, view->usual).empty());
    EXPECT_TRUE(advice_lines(settings, settings.size(), std::nullopt, std::nullopt).empty());

    const ValueRange scale = advice_scale(settings, lines);
    EXPECT_LT(scale.at(1), scale.at(settings[0].figures.speedup.value));
    for (const AdviceLine& line : lines) {
        const Estimate& speedup = settings[line.row].figures.speedup;
        EXPECT_GT(scale.at(speedup.interval->low), 0);
        EXPECT_LT(scale.at(speedup.interval->high), 1);
    }
    EXPECT_EQ(scale.at(100), 1);
}

}  // namespace
}  // namespace draftscope
