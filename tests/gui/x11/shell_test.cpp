#include "tests/gui/x11/desktop.h"

// What a person's keys and mouse do to the window when nothing else happens.
namespace draftscope::test {
namespace {

bool shows_tooltip(const Shown& shown) {
    return shown.has_window_of_kind("tooltip");
}

TEST_F(Desktop, TooltipAppearsWhileTheMouseRests) {
    start({capture(), "--no-demo"});
    ASSERT_FALSE(shows_tooltip(shown()));
    const auto follow = find("Follow");
    ASSERT_TRUE(follow);
    point(follow->box);
    EXPECT_TRUE(wait_until("a tooltip shows", shows_tooltip));
}

TEST_F(Desktop, PathAndEnterTypedFastSaveWithoutTheMouse) {
    start({capture(), "--no-demo"});
    const std::string copy = folder_.file("a_copy_with_a_rather_long_name_that_is_typed_fast.dscope");
    xdotool({"key", "ctrl+s", "key", "ctrl+a", "type", "--args", "1", "--delay", "0", copy, "key", "Return"});
    EXPECT_TRUE(wait_for("the copy is written", [&] { return std::filesystem::exists(copy); }));
}

TEST_F(Desktop, HeldKeyRepeats) {
    start({capture(), "--no-demo"});
    press("Home");
    ASSERT_TRUE(
        wait_until("the first round is selected", [](const Shown& s) { return s.number("round") == 0; }));
    xdotool({"keydown", "period"});
    EXPECT_TRUE(wait_until("the selection moves on", [](const Shown& s) { return s.number("round") >= 3; }));
    xdotool({"keyup", "period"});
}

TEST_F(Desktop, GotItLeavesTheTextInFront) {
    start({capture(), "--no-demo"});
    ASSERT_TRUE(
        wait_until("the text is in front", [](const Shown& s) { return s.window("text") != nullptr; }));
    click("Got it", "##guide");
    EXPECT_TRUE(wait_until("the guide goes", [](const Shown& s) { return s.window("##guide") == nullptr; }));
    EXPECT_NE(shown().window("text"), nullptr);
    EXPECT_EQ(shown().window("log"), nullptr);
}

}  // namespace
}  // namespace draftscope::test
