#include <set>

#include "tests/gui/x11/desktop.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/tiny_profile.h"

// Tests of a sweep that is started in the window, and of the rounds of its settings.
namespace draftscope::test {
namespace {

using draftscope::testing::arguments;

class SweepDesktop : public Desktop {
  protected:
    /// Makes a recording of two conversations, a drafter and a machine profile.
    void SetUp() override {
        Desktop::SetUp();
        ASSERT_TRUE(draftscope::testing::write_tiny_eagle2(drafter_, 5).ok());
        draftscope::testing::write_text(
            folder_.file("profile.json"),
            draftscope::testing::tiny_profile(draftscope::testing::tiny_gguf_vocab()));
        draftscope::testing::write_text(folder_.file("prompts.jsonl"), R"({"id": 0, "prompt": "hello you"})"
                                                                       "\n"
                                                                       R"({"id": 1, "prompt": "hello me"})"
                                                                       "\n");
        expect_success(
            arguments("record --model {} --prompts {} --max-new 12 --ignore-eos --threads 1 "
                      "--precision f32 --no-times --quiet --out {}",
                      model(), folder_.file("prompts.jsonl"), recording_));
        write_settings(R"({"guide_seen": true, "session": {"model": ")" + model() + R"(", "threads": 1}})");
    }
    void expect_success(const draftscope::testing::Arguments& words) {
        const auto done = draftscope::testing::run(folder_, words);
        ASSERT_EQ(done.exit_code, 0) << done.err;
    }
    void fill(const char* field, const std::string& text) {
        // A message about the field above may come or go between the look and the click.
        const auto is_active = [&](const Shown& s) {
            const Shown::Item* item = s.item(field, "sweep");
            return item != nullptr && item->has("active");
        };
        for (int i = 0; i < 5 && !is_active(shown()); ++i) {
            click(field, "sweep");
            usleep(200'000);
        }
        xdotool({"key", "ctrl+a", "type", "--args", "1", "--delay", "0", text});
        EXPECT_TRUE(wait_until(std::string(field) + " has the text",
                               [&](const Shown& s) { return s.value("typed") == text; }));
    }

    /// Clicks on the mark of the longest round.
    void click_last_mark() {
        ASSERT_TRUE(wait_until("the front has marks", has_marks));
        find("setting", "sweep/##plot");  // at rest
        const Shown now = shown();
        const Shown::Item* last = nullptr;
        for (const Shown::Item& item : now.items)
            if (item.label == "setting" && item.window.starts_with("sweep/##plot") &&
                (last == nullptr || item.box.left > last->box.left))
                last = &item;
        ASSERT_NE(last, nullptr);
        const auto [x, y] = last->box.at(0.5f, 0.5f);
        // A window that is busy receives the arrival of the mouse and the press in one frame.
        signal_program(SIGSTOP);
        xdotool({"mousemove", std::to_string(x), std::to_string(y), "click", "1"});
        signal_program(SIGCONT);
    }
    static bool has_marks(const Shown& shown) { return shown.item("setting", "sweep/##plot") != nullptr; }

    /// Clicks on the mark of the longest round, then on both buttons of its details.
    void show_rounds_of_last_mark(const std::string& tree) {
        click_last_mark();
        click("Use for the next run", "sweep");
        ASSERT_TRUE(wait_until("Session has the setting", [&](const Shown& s) {
            return s.value("command").find("--drafter eagle2:" + drafter_) != std::string::npos;
        }));
        click("Show its rounds", "sweep");
        ASSERT_TRUE(wait_until("its rounds are shown", [](const Shown& s) {
            return s.value("state") == "idle" && s.number("rounds") > 1 && !s.value("round").empty();
        }));
        const Shown now = shown();
        EXPECT_EQ(now.value("error"), "");
        EXPECT_EQ(now.value("runs"), "1");
        EXPECT_EQ(now.value("focus"), "draft_tree");
        EXPECT_EQ(now.value("run_tree"), tree);
        EXPECT_NE(now.value("command").find("--tree " + tree), std::string::npos) << now.value("command");
        take_picture("sweep-rounds");
    }

    /// Selects a round by its token in the text, and looks for the root of its tree.
    void expect_text_and_tree() {
        press("Home");
        ASSERT_TRUE(
            wait_until("the first round is selected", [](const Shown& s) { return s.number("round") == 0; }));
        const Shown first = shown();
        const Shown::Window* text = first.window("text/##output");
        ASSERT_NE(text, nullptr);
        ASSERT_TRUE(hover_down(text->box, 0.45f)) << "no token in the text";
        xdotool({"click", "1"});
        EXPECT_TRUE(
            wait_until("a token selects its round", [](const Shown& s) { return s.number("round") > 0; }));
        const auto canvas = find("tree", "draft_tree");
        ASSERT_TRUE(canvas);
        EXPECT_TRUE(hover_down(canvas->box, 0.04f)) << "no root in the tree";
        take_picture("sweep-root");
    }

    /// Moves the mouse down from the middle of a box until a tooltip shows.
    bool hover_down(const Box& box, float x) {
        const auto shows = [&] { return shown().has_window_of_kind("tooltip"); };
        for (int y = box.at(0, 0.45f).second; y < static_cast<int>(box.bottom); y += 10) {
            const long frame = shown().number("frame");
            point(box.at(x, 0).first, y);
            for (int i = 0; i < 50 && shown().number("frame") < frame + 2; ++i) usleep(10'000);
            if (shows()) return true;
        }
        return false;
    }

    const std::string recording_ = folder_.file("recorded"), drafter_ = folder_.file("eagle2");
};

TEST_F(SweepDesktop, StartsASweepAndShowsTheRoundsOfItsSetting) {
    start({"--no-demo", "--layout", "choose"});
    fill("##recording", recording_);
    fill("##profile", folder_.file("profile.json"));
    fill("##drafters", "eagle2:" + drafter_);
    take_picture("sweep-form");
    ASSERT_TRUE(wait_until("the form is checked", [](const Shown& s) {
        const Shown::Item* button = s.item("Sweep##start", "sweep");
        return button != nullptr && !button->has("disabled");
    }));
    click("Sweep##start", "sweep");
    ASSERT_TRUE(wait_until("the sweep is shown",
                           [](const Shown& s) { return has_marks(s) && s.value("state") == "idle"; }));
    EXPECT_EQ(shown().value("error"), "");
    take_picture("sweep-done");
    show_rounds_of_last_mark("chain=6");
}

TEST_F(SweepDesktop, ShowsTheRoundsOfASettingOfASavedSweep) {
    const std::string file = folder_.file("sweep.dscope");
    expect_success(
        arguments("sweep --recording {} --model {} --threads 1 --quiet --profile {} --drafters eagle2:{} "
                  "--chain 2 --topk 2 --nodes 4 --save {}",
                  recording_, model(), folder_.file("profile.json"), drafter_, file));
    start({file, "--no-demo", "--layout", "choose"});
    show_rounds_of_last_mark("depth=2,topk=2,nodes=4");
    EXPECT_TRUE(has_marks(shown())) << "the sweep stays";
    expect_text_and_tree();
}

}  // namespace
}  // namespace draftscope::test
