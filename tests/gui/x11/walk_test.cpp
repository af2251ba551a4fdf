#include <array>

#include "tests/gui/x11/desktop.h"

// A walk through the program with keys and mouse: every panel, every layout, starts and ends. With
// DRAFTSCOPE_X11_PICTURES=FOLDER it leaves about forty pictures to look at.
namespace draftscope::test {
namespace {

struct PanelName {
    const char *id, *title;
};
constexpr PanelName panel_names[] = {{"session", "Session"},       {"text", "Text"},
                                     {"draft_tree", "Draft tree"}, {"plane", "Acceptance-cost plane"},
                                     {"timeline", "Timeline"},     {"phases", "Phases"},
                                     {"latency", "Latency"},       {"rejections", "Rejections"},
                                     {"coverage", "Coverage"},     {"kernels", "Kernels"},
                                     {"compare", "Compare"},       {"sweep", "Sweep"},
                                     {"advisor", "Advisor"},       {"matrix", "Matrix"},
                                     {"rounds", "Rounds"},         {"log", "Log"}};

class Walk : public Desktop {
  protected:
    /// Chooses the palette's first entry for this text.
    void choose(const std::string& words) {
        press("ctrl+k");
        ASSERT_TRUE(wait_until("the palette is open", [](const Shown& s) {
            return s.has_window_of_kind("popup") && s.item("##filter") != nullptr;
        }));
        type(words);
        ASSERT_TRUE(
            wait_until("the words are typed", [&](const Shown& s) { return s.value("typed") == words; }));
        press("Return");
        ASSERT_TRUE(wait_until("the palette is closed",
                               [](const Shown& s) { return !s.has_window_of_kind("popup"); }));
    }
    bool shows(const std::string& panel) {
        return wait_until(panel + " is in front", [&](const Shown& s) { return s.window(panel) != nullptr; });
    }
};

class WalkInTheme : public Walk, public ::testing::WithParamInterface<const char*> {};

TEST_P(WalkInTheme, ThePaletteLeadsToEveryPanel) {
    write_settings(std::string(R"({"guide_seen": true, "theme": ")") + GetParam() + "\"}");
    start({capture(), "--no-demo"});
    EXPECT_EQ(shown().value("theme"), GetParam());
    for (const PanelName& panel : panel_names) {
        choose(std::string("Panel: ") + panel.title);
        EXPECT_TRUE(shows(panel.id));
        take_picture(std::string("panel-") + GetParam() + "-" + panel.id);
    }
}

INSTANTIATE_TEST_SUITE_P(Themes, WalkInTheme, ::testing::Values("dark", "light"));

TEST_F(Walk, LayoutsAtTwoSizes) {
    start({capture(), "--no-demo"});
    const std::array layouts = {std::pair{"explain", "draft_tree"}, std::pair{"profile", "timeline"},
                                std::pair{"compare", "compare"}, std::pair{"choose", "sweep"}};
    for (const auto& [width, height] : {std::pair{1280, 720}, {1600, 1000}}) {
        resize(width, height);
        for (std::size_t i = 0; i < layouts.size(); ++i) {
            press("ctrl+" + std::to_string(i + 1));
            ASSERT_TRUE(wait_until("the layout changes", [&](const Shown& s) {
                return s.value("layout") == layouts[i].first && s.window(layouts[i].second) != nullptr;
            }));
            take_picture(std::string("layout-") + layouts[i].first + "-" + std::to_string(width));
        }
    }
}

TEST_F(Walk, TextIsInFrontAtTheSecondStart) {
    const std::string file = capture();
    for (int i = 0; i < 2; ++i) {
        start({file, "--no-demo"});
        EXPECT_TRUE(shows("text"));
        press("ctrl+q");
        EXPECT_EQ(wait_for_end(), 0);
    }
}

TEST_F(Walk, ABookmarkIsKeptInTheFile) {
    const std::string file = capture();
    start({file, "--no-demo"});
    press("Home");
    ASSERT_TRUE(
        wait_until("the first round is shown", [](const Shown& s) { return s.value("round") == "0"; }));
    press("b");
    ASSERT_TRUE(
        wait_until("its text can be typed", [](const Shown& s) { return s.has_window_of_kind("modal"); }));
    type("odd");
    ASSERT_TRUE(wait_until("it is typed", [](const Shown& s) { return s.value("typed") == "odd"; }));
    press("Return");
    ASSERT_TRUE(
        wait_until("the popup closes", [](const Shown& s) { return !s.has_window_of_kind("modal"); }));
    press("ctrl+q");
    EXPECT_EQ(wait_for_end(), 0);
    start({file, "--no-demo"});
    press("End");
    ASSERT_TRUE(
        wait_until("the last round is shown", [](const Shown& s) { return s.value("round") != "0"; }));
    press("shift+n");
    EXPECT_TRUE(wait_until("the bookmark is found", [](const Shown& s) { return s.value("round") == "0"; }));
    take_picture("bookmark");
}

TEST_F(Walk, TheOtherRunShowsTheSamePlace) {
    start({capture(), "--no-demo", "--layout", "compare"});
    for (int i = 0; i < 3; ++i) press("comma");
    ASSERT_TRUE(
        wait_until("an earlier round is shown", [](const Shown& s) { return s.value("round") == "22"; }));
    press("t");
    EXPECT_TRUE(wait_until("the other run is shown", [](const Shown& s) { return s.value("run") == "2"; }));
    take_picture("other-run");
    press("t");
    EXPECT_TRUE(wait_until("the same round as before is shown",
                           [](const Shown& s) { return s.value("run") == "1" && s.value("round") == "22"; }));
}

TEST_F(Walk, ARoundIsDraftedAgain) {
    write_settings(R"({"guide_seen": true, "session": {"model": ")" + model() +
                   R"(", "drafter": "ngram", "head": "full"}})");
    start({capture(), "--no-demo"});
    press("Home");
    ASSERT_TRUE(
        wait_until("the first round is shown", [](const Shown& s) { return s.value("round") == "0"; }));
    click("What if...");
    ASSERT_TRUE(find("Draft##what_if"));
    click("Draft##what_if");
    EXPECT_TRUE(wait_until("it is drafted again", [](const Shown& s) { return s.value("what_ifs") == "1"; }));
    take_picture("what-if");
}

}  // namespace
}  // namespace draftscope::test
