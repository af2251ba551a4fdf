#include "tests/gui/x11/desktop.h"

// Tests of keys and mouse in an idle window.
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

TEST_F(Desktop, TreeAsTextTakesEveryKey) {
    write_settings(R"({"session": {"tree": "choices:mc_sim_7b_63"}})");
    start({capture(), "--no-demo"});
    ASSERT_TRUE(wait_until("the capture is read", [](const Shown& s) { return !s.value("round").empty(); }));
    const std::string round = shown().value("round");
    click("##spec", "session");
    xdotool({"key", "ctrl+a", "type", "--args", "1", "--delay", "0", "depth=6,topk=10,nodes=60"});
    EXPECT_TRUE(wait_until("the text is whole", [](const Shown& s) {
        return s.value("typed") == "depth=6,topk=10,nodes=60" &&
               s.value("command").find("--tree depth=6,topk=10,nodes=60") != std::string::npos;
    }));
    EXPECT_EQ(shown().value("round"), round) << "the commas were text";
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

TEST_F(Desktop, SettingsSurviveAKilledProcess) {
    start({"--no-demo"});
    click("Got it", "##guide");
    ASSERT_TRUE(wait_until("the guide goes", [](const Shown& s) { return s.window("##guide") == nullptr; }));
    click("View", "##MainMenuBar");
    click("Light theme");
    ASSERT_TRUE(wait_until("the theme is light", [](const Shown& s) { return s.value("theme") == "light"; }));
    ASSERT_TRUE(wait_for("the settings are kept", [&] {
        return draftscope::testing::read_text(config_file("settings.json")).find("\"light\"") !=
               std::string::npos;
    }));
    kill_program();
    start({"--no-demo"});
    EXPECT_EQ(shown().value("theme"), "light");
    EXPECT_TRUE(shown().window("##guide") == nullptr)
        << draftscope::testing::read_text(config_file("settings.json"));
}

TEST_F(Desktop, DamagedSettingsAreIgnored) {
    write_settings("{\"theme\": \"light\", \"sess");
    start({"--no-demo"});
    EXPECT_EQ(shown().value("theme"), "dark");
    EXPECT_NE(
        draftscope::testing::read_text(folder_.file("gui.log")).find("settings.json: not JSON; ignored"),
        std::string::npos);
}

TEST_F(Desktop, UnsavedRoundsAreConfirmedAndSaved) {
    write_settings(R"({"guide_seen": true, "session": {"model": ")" + model() +
                   R"(", "drafter": "ngram", "head": "full", "prompt": "hello you", "max_new": 200,
                   "ignore_eos": true, "baseline": 0}})");
    start({"--no-demo"});
    press("space");
    ASSERT_TRUE(wait_until("there are rounds", [](const Shown& s) { return s.number("rounds") > 0; }));
    press("ctrl+q");
    ASSERT_TRUE(
        wait_until("it asks", [](const Shown& s) { return s.window("Save recorded rounds?") != nullptr; }));
    press("Escape");
    ASSERT_TRUE(wait_until("it closes", [](const Shown& s) { return !s.has_window_of_kind("modal"); }));
    ASSERT_TRUE(wait_until("the run ends", [](const Shown& s) { return s.value("state") == "idle"; }));
    press("ctrl+q");
    click("Save...");
    ASSERT_TRUE(
        wait_until("a name can be typed", [](const Shown& s) { return s.value("typed") == "run.dscope"; }));
    const std::string path = folder_.file("saved.dscope");
    xdotool({"key", "ctrl+a", "type", "--args", "1", "--delay", "0", path, "key", "Return"});
    EXPECT_EQ(wait_for_end(), 0);
    const auto checked = draftscope::testing::run(folder_, {"check", path});
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

TEST_F(Desktop, SavingIsConfirmed) {
    start({capture(), "--no-demo"});
    const std::string path = folder_.file("copy.dscope");
    press("ctrl+s");
    ASSERT_TRUE(
        wait_until("a name can be typed", [](const Shown& s) { return s.value("typed") == "run.dscope"; }));
    xdotool({"key", "ctrl+a", "type", "--args", "1", "--delay", "0", path, "key", "Return"});
    EXPECT_TRUE(
        wait_until("a notice shows", [&](const Shown& s) { return s.value("notice") == "Saved " + path; }));
    EXPECT_TRUE(
        wait_until("the notice disappears", [](const Shown& s) { return s.value("notice").empty(); }));
}

}  // namespace
}  // namespace draftscope::test
