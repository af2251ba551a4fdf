#include "tests/gui/x11/desktop.h"

// Tests of stepping by keys, starting from idle.
namespace draftscope::test {
namespace {

bool is_held(const Shown& shown) {
    return shown.value("state") == "held";
}

class SteppingDesktop : public Desktop {
  protected:
    /// Starts a window set up for the tiny model and the ngram drafter.
    void start_idle() {
        write_settings(R"({"guide_seen": true, "session": {"model": ")" + model() +
                       R"(", "drafter": "ngram", "head": "full", "prompt": "hello you", "max_new": 64,
                       "ignore_eos": true, "baseline": 0}})");
        start({"--no-demo"});
        ASSERT_TRUE(wait_until("model and drafter are chosen", [&](const Shown& s) {
            const std::string command = s.value("command");
            return command.find("ngram") != std::string::npos && command.find(model()) != std::string::npos;
        }));
    }
};

TEST_F(SteppingDesktop, F10RunsOneRoundAndPhaseStepsShowProgress) {
    start_idle();
    press("F10");
    ASSERT_TRUE(wait_until("one round is done", [](const Shown& s) {
        return is_held(s) && s.number("rounds") == 1 && s.value("round") == "0";
    }));
    EXPECT_EQ(shown().value("held"), "paused after round 1");
    take_picture("stepping-round");
    press("shift+F11");
    ASSERT_TRUE(wait_until("the engine is paused in round 2", [](const Shown& s) {
        return is_held(s) && s.value("in_flight") == "1" && s.number("rounds") == 1;
    }));
    const std::string first = shown().value("held");
    EXPECT_NE(first.find("paused after "), std::string::npos) << first;
    EXPECT_NE(first.find("; next: "), std::string::npos) << first;
    take_picture("stepping-phase");
    press("shift+F11");
    EXPECT_TRUE(wait_until("another phase is done",
                           [&](const Shown& s) { return is_held(s) && s.value("held") != first; }));
    press("comma");
    EXPECT_TRUE(wait_until("the finished round is shown", [](const Shown& s) {
        return s.value("in_flight") == "0" && s.value("round") == "0";
    }));
    press("F10");
    EXPECT_TRUE(wait_until("the second round is done", [](const Shown& s) {
        return is_held(s) && s.number("rounds") == 2 && s.value("round") == "1";
    }));
}

TEST_F(SteppingDesktop, EscapeClearsTheRange) {
    start({capture(), "--no-demo"});
    const auto lanes = find("lanes", "timeline");
    ASSERT_TRUE(lanes);
    const auto [x0, y] = lanes->box.at(0.4f, 0.3f);
    const int x1 = lanes->box.at(0.8f, 0.3f).first;
    // A window that is busy receives the arrival of the mouse and the press in one frame.
    signal_program(SIGSTOP);
    xdotool({"mousemove", std::to_string(x0), std::to_string(y), "mousedown", "1"});
    signal_program(SIGCONT);
    xdotool({"sleep", "0.2", "mousemove", std::to_string((x0 + x1) / 2), std::to_string(y), "sleep", "0.2",
             "mousemove", std::to_string(x1), std::to_string(y), "sleep", "0.2", "mouseup", "1"});
    ASSERT_TRUE(wait_until("a range is selected", [](const Shown& s) { return !s.value("range").empty(); }));
    take_picture("range");
    press("Escape");
    EXPECT_TRUE(wait_until("the range is cleared", [](const Shown& s) { return s.value("range").empty(); }));
}

}  // namespace
}  // namespace draftscope::test
