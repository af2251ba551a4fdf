#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/cli/program.h"

/// The real program on a real X server, driven by real key and mouse events.
namespace draftscope::test {

struct Box {
    float left = 0, top = 0, right = 0, bottom = 0;
    float width() const { return right - left; }
    float height() const { return bottom - top; }
    /// A point inside, by shares of width and height.
    std::pair<int, int> at(float x, float y) const;
};

/// What the program showed in its last frame, by the file that DRAFTSCOPE_GUI_STATE names
/// (app/gui/shell/state_dump.cpp).
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
    /// A visible item by its label: the whole one, what is shown of it, or its id after "###"; `window`
    /// limits the search to windows whose name begins so.
    const Item* item(const std::string& label, const std::string& window = "") const;
    bool has_window_of_kind(const std::string& kind) const;
};

/// A display of its own, the user's folders of its own, and the program in a window of 1600x1000.
/// Every wait is for a condition, with a deadline that a loaded machine keeps.
class Desktop : public ::testing::Test {
  protected:
    Desktop();
    ~Desktop() override;
    void SetUp() override;

    /// Starts `draftscope gui ARGUMENTS` and waits for the first frames; ends the one before.
    void start(std::vector<std::string> arguments);
    /// Waits for the program to end; its exit code.
    int wait_for_end();
    /// Kills it, as a power cut would.
    void kill_program();
    bool is_running() const;

    Shown shown() const;
    using Condition = std::function<bool(const Shown&)>;
    /// Fails the test, says `what`, when the condition isn't met by the deadline.
    bool wait_until(const std::string& what, const Condition& condition);
    /// The same, for what is not in the program's state: a file, say.
    bool wait_for(const std::string& what, const std::function<bool()>& condition);
    /// An item once it is visible and stays at its place.
    std::optional<Shown::Item> find(const std::string& label, const std::string& window = "");

    /// Arguments of one call of xdotool: {"key", "ctrl+s"}, {"mousemove", "10", "10", "click", "1"}.
    void xdotool(const std::vector<std::string>& words);
    void press(const std::string& chord) { xdotool({"key", chord}); }
    /// As fast as xdotool can.
    void type(const std::string& text) { xdotool({"type", "--args", "1", "--delay", "0", text}); }
    void point(int x, int y);
    void point(const Box& box) { point(box.at(0.5f, 0.5f).first, box.at(0.5f, 0.5f).second); }
    void click(const std::string& label, const std::string& window = "");
    void resize(int width, int height);
    /// What the screen shows, as a file for people to look at; kept where DRAFTSCOPE_X11_PICTURES names a
    /// folder.
    void take_picture(const std::string& name);

    /// A capture of a few rounds, recorded by the program; a model for live runs.
    std::string capture();
    std::string model() { return testing::tiny_model(folder_); }
    /// settings.json of the window, before it starts: `{"session": {"model": ...}}`, say.
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
