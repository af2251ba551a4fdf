#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/app/cli/program.h"

/// Runs the program on an X server and drives it with key and mouse events.
namespace draftscope::test {

struct Box {
    float left = 0, top = 0, right = 0, bottom = 0;
    float width() const { return right - left; }
    float height() const { return bottom - top; }
    /// Returns a point inside; x and y are fractions of the size.
    std::pair<int, int> at(float x, float y) const;
};

/// The program's last frame, read from the file named by DRAFTSCOPE_GUI_STATE (app/gui/shell/state_dump.cpp).
struct Shown {
    struct Window {
        std::string name, kind;  ///< kind: window, popup, modal, tooltip
        Box box;
    };
    struct Item {
        std::string window, label, marks;  ///< marks: checked, opened, disabled, active
        Box box;
        bool has(const std::string& mark) const { return marks.find(mark) != std::string::npos; }
    };
    std::map<std::string, std::string> values;  ///< frame, state, rounds, round, command, typed, ...
    std::vector<Window> windows;
    std::vector<Item> items;

    std::string value(const std::string& name) const;
    long number(const std::string& name) const;
    const Window* window(const std::string& name) const;
    /// Returns a visible item by its full label, its shown text, or its id after "###". `window`: prefix of
    /// the window's name.
    const Item* item(const std::string& label, const std::string& window = "") const;
    bool has_window_of_kind(const std::string& kind) const;
};

/// Fixture with a private display, private user folders and the program in a 1600x1000 window. Every wait has
/// a condition and a long deadline.
class Desktop : public ::testing::Test {
  protected:
    Desktop();
    ~Desktop() override;
    void SetUp() override;

    /// Ends a running program, starts `draftscope gui ARGUMENTS` and waits for the first frames.
    void start(std::vector<std::string> arguments);
    /// Waits for the program to end and returns its exit code.
    int wait_for_end();
    /// Kills the program with SIGKILL.
    void kill_program();
    /// Sends a signal to the program: SIGSTOP holds its window, SIGCONT lets it go on.
    void signal_program(int signal) { kill(program_, signal); }
    bool is_running() const;

    Shown shown() const;
    using Condition = std::function<bool(const Shown&)>;
    /// Waits for a condition on the program's state. At the deadline, fails the test and reports `what`.
    bool wait_until(const std::string& what, const Condition& condition);
    /// Like wait_until(), for conditions outside the program's state, such as a file.
    bool wait_for(const std::string& what, const std::function<bool()>& condition);
    /// Waits until an item is visible and does not move.
    std::optional<Shown::Item> find(const std::string& label, const std::string& window = "");

    /// Runs xdotool with arguments such as {"key", "ctrl+s"} or {"mousemove", "10", "10", "click", "1"}.
    void xdotool(const std::vector<std::string>& words);
    void press(const std::string& chord) { xdotool({"key", chord}); }
    /// Types without delays.
    void type(const std::string& text) { xdotool({"type", "--args", "1", "--delay", "0", text}); }
    void point(int x, int y);
    void point(const Box& box) { point(box.at(0.5f, 0.5f).first, box.at(0.5f, 0.5f).second); }
    void click(const std::string& label, const std::string& window = "");
    void resize(int width, int height);
    /// Saves the screen to the folder named by DRAFTSCOPE_X11_PICTURES, if set.
    void take_picture(const std::string& name);

    /// Returns the path of a recorded capture with a few rounds.
    std::string capture();
    std::string model() { return testing::tiny_model(folder_); }
    /// Writes the window's settings.json before the start, such as `{"session": {"model": ...}}`.
    void write_settings(const std::string& json) const;
    std::string config_file(const std::string& name) const { return config_ + "/draftscope/" + name; }

    testing::ScratchFolder folder_;
    std::string config_;  ///< XDG_CONFIG_HOME

  private:
    std::string start_server();
    void environment() const;
    pid_t spawn(const std::vector<std::string>& words, const std::string& log, bool with_display) const;
    void end(pid_t& pid, int signal);

    std::string display_, state_file_;
    pid_t server_ = -1, program_ = -1;
};

}  // namespace draftscope::test
