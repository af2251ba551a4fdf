#include "app/gui/models/advisor.h"

#include <gtest/gtest.h>

#include "tests/gui/synthetic_sweep.h"

namespace draftscope {
namespace {

TEST(AdvisorModel, ListsTheSettingsOfAnAdviceOnce) {
    const auto view = test::synthetic_sweep();
    const SweepData data{view->settings, view->rows};
    const std::vector<AdviceLine> lines =
        advice_lines(data, view->advice.chosen, view->advice.runner_up, view->usual);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].role, "advised, fastest");
    EXPECT_EQ(lines[0].row, 0u);
    EXPECT_EQ(lines[1].role, "runner-up");
    EXPECT_EQ(lines[1].row, 1u);
    EXPECT_EQ(lines[2].role, "full head, default");
    EXPECT_EQ(lines[2].row, *view->usual);
    EXPECT_EQ(data.setting(lines[2].row).tree, data.setting(0).tree);
    EXPECT_TRUE(advice_lines(data, std::nullopt, std::nullopt, view->usual).empty());
    EXPECT_TRUE(advice_lines(data, data.settings.size(), std::nullopt, std::nullopt).empty());

    const AdviceScale scale = advice_scale(data, lines);
    EXPECT_LT(scale.at(1), scale.at(data.rows[0].speedup.value));
    for (const AdviceLine& line : lines) {
        const Estimate& speedup = data.rows[line.row].speedup;
        EXPECT_GT(scale.at(speedup.interval->low), 0);
        EXPECT_LT(scale.at(speedup.interval->high), 1);
    }
    EXPECT_EQ(scale.at(100), 1);
}

}  // namespace
}  // namespace draftscope
