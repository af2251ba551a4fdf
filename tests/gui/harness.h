#pragma once

#include <imgui.h>
#include <imgui_te_context.h>
#include <imgui_te_engine.h>

#include <functional>
#include <memory>

#include "app/gui/shell/app.h"
#include "tests/gui/fake_controller.h"

namespace draftscope::test {

/// The window's contents on the null back end, driven by ImGui's test engine: a person without a screen.
class Harness {
  public:
    explicit Harness(GuiOptions options = {});
    ~Harness();
    Harness(const Harness&) = delete;
    Harness& operator=(const Harness&) = delete;

    /// Runs the script to its end, drawing frames; true when every step of it found what it looked for.
    bool run(const std::function<void(ImGuiTestContext*)>& script);
    void draw_frames(int count);
    /// Draws as the window's loop does after input; false when it does not come to rest within `limit`
    /// frames.
    bool draw_until_rest(int limit = 600);

    /// Of the window, from the next frame on.
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
