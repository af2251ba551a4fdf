#pragma once

#include <imgui.h>
#include <imgui_te_context.h>
#include <imgui_te_engine.h>

#include <functional>
#include <memory>

#include "app/gui/shell/app.h"
#include "tests/gui/fake_controller.h"

namespace draftscope::test {

/// Returns the options of a window that does not start the demo.
inline GuiOptions quiet() {
    GuiOptions options;
    options.run_demo = false;
    return options;
}

/// Runs the window's contents on ImGui's null back end, driven by ImGui's test engine.
class Harness {
  public:
    /// `layout`: of an earlier window, as its layout().
    explicit Harness(GuiOptions options = {}, const std::string& layout = "");
    ~Harness();
    Harness(const Harness&) = delete;
    Harness& operator=(const Harness&) = delete;

    /// Runs the script while drawing frames. Returns true if all its steps succeeded.
    bool run(const std::function<void(ImGuiTestContext*)>& script);
    void draw_frames(int count);
    /// Draws like the window's loop after input. Returns false if frames are still due after `limit` frames.
    bool draw_until_rest(int limit = 600);

    /// Returns what layout.ini would have.
    std::string layout() const { return ImGui::SaveIniSettingsToMemory(); }

    /// Sets the window's size from the next frame on.
    void resize(float width, float height) { size_ = {width, height}; }

    FakeController controller;
    App& app() { return *app_; }

  private:
    void draw_frame();

    ImVec2 size_{1600, 1000};
    ImGuiTestEngine* engine_ = nullptr;
    std::unique_ptr<App> app_;
};

}  // namespace draftscope::test
