#include <cmath>

#include "tests/gui/x11/desktop.h"

// Tests of the panels after resizing, and of errors for invalid settings.
namespace draftscope::test {
namespace {

float window_width(const Shown& shown, const char* panel) {
    const Shown::Window* window = shown.window(panel);
    return window == nullptr ? 0 : window->box.width();
}

std::function<bool(const Shown&)> has_width(const char* panel, float width) {
    return [=](const Shown& shown) { return std::abs(window_width(shown, panel) - width) < 8; };
}

TEST_F(Desktop, PanelsKeepSharesAndMergeIntoTabsInASmallWindow) {
    start({capture(), "--no-demo"});
    const float left = window_width(shown(), "session"), tree = window_width(shown(), "draft_tree");
    ASSERT_GT(left, 100);
    resize(1200, 750);
    EXPECT_TRUE(wait_until("the left column has its share", has_width("session", 0.75f * left)));
    EXPECT_TRUE(wait_until("the tree has its share", has_width("draft_tree", 0.75f * tree)));
    resize(900, 600);
    EXPECT_TRUE(wait_until("Text is a tab next to Session", [](const Shown& shown) {
        return shown.window("session") != nullptr && shown.window("text") == nullptr;
    }));
    const Shown small = shown();
    for (const char* panel : {"session", "draft_tree", "plane", "timeline", "rounds"}) {
        const Shown::Window* window = small.window(panel);
        ASSERT_NE(window, nullptr) << panel;
        EXPECT_GT(window->box.width(), 150) << panel;
        EXPECT_GT(window->box.height(), 90) << panel;
    }
    resize(1600, 1000);
    EXPECT_TRUE(wait_until("Text has its place again",
                           [](const Shown& shown) { return shown.window("text") != nullptr; }));
    EXPECT_TRUE(wait_until("the left column is as it was", has_width("session", left)));
}

TEST_F(Desktop, AMistakeIsMendedByTheNearestValue) {
    start({capture(), "--no-demo"});
    click("##shadow", "session");
    type("slimspc");
    const auto nearest = [](const Shown& shown) { return shown.item("slimspec", "session") != nullptr; };
    ASSERT_TRUE(wait_until("the nearest head is offered", nearest));
    take_picture("mistake");
    click("Run", "##tools");
    EXPECT_EQ(shown().value("state"), "idle") << "Run waits for valid fields";
    click("slimspec", "session");
    EXPECT_TRUE(wait_until("the head is filled in", [](const Shown& shown) {
        return shown.value("command").find("--shadow slimspec") != std::string::npos;
    }));
    EXPECT_TRUE(wait_until("nothing is wrong", [&](const Shown& shown) { return !nearest(shown); }));
}

}  // namespace
}  // namespace draftscope::test
