#pragma once

#include <imgui.h>

#include <string>
#include <vector>

/// What the window shows, as text, for tests that drive the program by real keys and mouse.
namespace draftscope {

class App;

/// One item of the frame that is being drawn, as ImGui's hooks report it (item_hooks.cpp).
struct ShownItem {
    ImGuiID id = 0;
    std::string window;  ///< "session/##scroll": ids of windows where they have one, else titles
    std::string label;   ///< as in the source, with "##" and "###"
    ImVec4 box;          ///< left, top, right, bottom
    bool visible = false, checked = false, opened = false, disabled = false;
};
std::vector<ShownItem>& shown_items();
/// The name by which tests know a window: what follows "###" of each part, without the hash of child windows.
std::string plain_window_name(const char* name);

/// Writes the file that DRAFTSCOPE_GUI_STATE names after every frame; without the variable does nothing.
/// One line a fact, fields separated by tabs: NAME VALUE, `window` and `item` lines with their boxes.
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
