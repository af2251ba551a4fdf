#pragma once

#include <imgui.h>

#include <string>
#include <vector>

/// The window's state as text, for tests that drive the program by real keys and mouse.
namespace draftscope {

class App;

/// One item of the current frame, as reported by ImGui's hooks (item_hooks.cpp).
struct ShownItem {
    ImGuiID id = 0;
    std::string window;  ///< "session/##scroll": a window's id if it has one, else its title
    std::string label;   ///< as in the source, including "##" and "###"
    ImVec4 box;          ///< left, top, right, bottom
    bool visible = false, checked = false, opened = false, disabled = false;
};
/// Items of the current frame.
std::vector<ShownItem>& shown_items();
/// Returns a window's name in tests: the text after "###" of each part, without the hash of child windows.
std::string plain_window_name(const char* name);

/// Writes the file named by DRAFTSCOPE_GUI_STATE, if set, after every frame. Fields are separated by tabs:
/// `NAME VALUE` lines, then `window` and `item` lines with boxes.
class StateDump {
  public:
    StateDump();
    void before_frame();
    void after_frame(App& app);

  private:
    std::string path_;
    long frames_ = 0;
};

}  // namespace draftscope
