#include "tests/gui/harness.h"

#include <imgui_impl_null.h>
#include <implot.h>

#include <cmath>
#include <cstdio>

#include "app/gui/shell/imgui_frame.h"

namespace draftscope::test {

Harness::Harness(GuiOptions options, const std::string& layout) {
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    if (!layout.empty()) ImGui::LoadIniSettingsFromMemory(layout.c_str());
    io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
    ImGui_ImplNull_Init();
    engine_ = ImGuiTestEngine_CreateContext();
    ImGuiTestEngineIO& test_io = ImGuiTestEngine_GetIO(engine_);
    test_io.ConfigRunSpeed = ImGuiTestRunSpeed_Fast;
    test_io.ConfigSavedSettings = false;
    test_io.ConfigFixedDeltaTime = 1.0f / 60.0f;
    test_io.ConfigLogToTTY = true;
    test_io.ConfigVerboseLevel = ImGuiTestVerboseLevel_Error;
    ImGuiTestEngine_Start(engine_, ImGui::GetCurrentContext());
    if (options.settings_file.empty())
        options.screenshot = "none";  // no guide: scripts start with the plain window
    app_ = std::make_unique<App>(controller, options);
    draw_frames(4);
}

Harness::~Harness() {
    app_.reset();
    ImGuiTestEngine_Stop(engine_);
    ImGui_ImplNull_Shutdown();
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
    ImGuiTestEngine_DestroyContext(engine_);
}

void Harness::draw_frame() {
    ImGui_ImplNull_NewFrame();
    ImGui::GetIO().DisplaySize = size_;
    app_->prepare(1.0f);
    new_imgui_frame();
    app_->frame();
    ImGui::Render();
    ImGui_ImplNullRender_RenderDrawData(ImGui::GetDrawData());
    ImGuiTestEngine_PostSwap(engine_);
}

void Harness::draw_frames(int count) {
    for (int i = 0; i < count; ++i) draw_frame();
}

bool Harness::draw_until_rest(int limit) {
    FramesDue due;
    for (int i = 0; i < limit && std::isfinite(due.seconds()); ++i) {
        draw_frame();
        due.computed();
    }
    return !std::isfinite(due.seconds());
}

bool Harness::run(const std::function<void(ImGuiTestContext*)>& script) {
    ImGuiTest* test = ImGuiTestEngine_RegisterTest(engine_, "window", "script", __FILE__, __LINE__);
    test->TestFunc = script;
    ImGuiTestEngine_QueueTest(engine_, test);
    while (!ImGuiTestEngine_IsTestQueueEmpty(engine_)) draw_frame();
    const bool passed = test->Output.Status == ImGuiTestStatus_Success;
    ImGuiTestEngine_UnregisterTest(engine_, test);
    draw_frames(2);
    return passed;
}

}  // namespace draftscope::test
