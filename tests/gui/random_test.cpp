#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/rng.h"
#include "base/temporary_folder.h"
#include "tests/gui/harness.h"
#include "tests/gui/synthetic_sweep.h"

// Random keys, mouse and sizes while runs go on. DRAFTSCOPE_RANDOM_INPUTS sets the number of inputs; with
// sanitizers, `./run test --all asan` makes 2,000 with each of three seeds.
namespace draftscope::test {
namespace {

constexpr std::array keys = {
    ImGuiKey_Tab,    ImGuiKey_LeftArrow, ImGuiKey_RightArrow, ImGuiKey_UpArrow, ImGuiKey_DownArrow,
    ImGuiKey_PageUp, ImGuiKey_PageDown,  ImGuiKey_Home,       ImGuiKey_End,     ImGuiKey_Delete,
    ImGuiKey_Enter,  ImGuiKey_Escape,    ImGuiKey_Space,      ImGuiKey_Comma,   ImGuiKey_Period,
    ImGuiKey_Minus,  ImGuiKey_Equal,     ImGuiKey_Slash,      ImGuiKey_F1,      ImGuiKey_F10,
    ImGuiKey_F11,    ImGuiKey_Backspace, ImGuiKey_0,          ImGuiKey_1,       ImGuiKey_2,
    ImGuiKey_3,      ImGuiKey_4,         ImGuiKey_A,          ImGuiKey_B,       ImGuiKey_C,
    ImGuiKey_D,      ImGuiKey_F,         ImGuiKey_H,          ImGuiKey_K,       ImGuiKey_L,
    ImGuiKey_M,      ImGuiKey_N,         ImGuiKey_O,          ImGuiKey_R,       ImGuiKey_S,
    ImGuiKey_V,      ImGuiKey_W,         ImGuiKey_X,          ImGuiKey_Z};
constexpr std::array modifiers = {ImGuiMod_None, ImGuiMod_None, ImGuiMod_None, ImGuiMod_Ctrl, ImGuiMod_Shift};
/// Typed one after the other: numbers, specs, other scripts and bytes that are no text.
constexpr std::array typed = {
    "0",    "-1", "1e9", "nan", "chain=3", "eagle2", "none.dscope", "\xE4\xBD\xA0", "\xF0\x9F\x99\x82",
    "%s%n", "<",  ",",   "="};

class Hand {
  public:
    Hand(Harness& window, std::uint64_t seed) : window_(window), rng_(seed) {}

    void do_something() {
        ImGuiIO& io = ImGui::GetIO();
        switch (below(12)) {
            case 0:
            case 1:
            case 2:
                move();
                break;
            case 3:
                click(below(8) == 0 ? ImGuiMouseButton_Right : ImGuiMouseButton_Left, 1);
                break;
            case 4:
                click(ImGuiMouseButton_Left, 1 + below(2));
                break;
            case 5:
                drag();
                break;
            case 6:
                io.AddMouseWheelEvent(0, static_cast<float>(below(7)) - 3);
                break;
            case 7:
            case 8:
                press();
                break;
            case 9:
                for (const char c : std::string(typed[below(typed.size())]))
                    io.AddInputCharacter(static_cast<unsigned char>(c));
                break;
            case 10:
                change_data();
                break;
            default:
                change_window();
                break;
        }
        window_.draw_frames(1 + below(3));
    }

  private:
    int below(std::size_t n) { return static_cast<int>(rng_.below(static_cast<std::uint32_t>(n))); }

    void move() {
        const ImVec2 size = ImGui::GetIO().DisplaySize;
        ImGui::GetIO().AddMousePosEvent(static_cast<float>(rng_.uniform()) * size.x,
                                        static_cast<float>(rng_.uniform()) * size.y);
    }
    void click(ImGuiMouseButton button, int times) {
        move();
        for (int i = 0; i < times; ++i)
            for (const bool down : {true, false}) {
                ImGui::GetIO().AddMouseButtonEvent(button, down);
                window_.draw_frames(1);
            }
    }
    void drag() {
        move();
        ImGui::GetIO().AddMouseButtonEvent(ImGuiMouseButton_Left, true);
        for (int i = below(5); i >= 0; --i) {
            move();
            window_.draw_frames(1);
        }
        ImGui::GetIO().AddMouseButtonEvent(ImGuiMouseButton_Left, false);
    }
    void press() {
        const ImGuiKey modifier = modifiers[below(modifiers.size())], key = keys[below(keys.size())];
        for (const bool down : {true, false}) {
            if (modifier != ImGuiMod_None) ImGui::GetIO().AddKeyEvent(modifier, down);
            ImGui::GetIO().AddKeyEvent(key, down);
            window_.draw_frames(1);
        }
    }
    void change_data() {
        FakeController& controller = window_.controller;
        JobStatus& status = controller.edit_status();
        switch (below(10)) {
            case 0:
                controller.submit({CmdStart{}});
                break;
            case 1:
                controller.submit({CmdStop{}});
                break;
            case 2:
                controller.submit({CmdStepLevel{}});
                break;
            case 3:
                controller.submit({CmdOpenFile{below(2) == 0 ? "stored.dscope" : "none.txt"}});
                break;
            case 4:
                controller.submit({CmdOpenOther{"other.dscope"}});
                break;
            case 5:
                status.sweeps = {synthetic_sweep()};
                break;
            case 6:
                status.error = below(2) == 0 ? "" : "model.gguf: not a GGUF file";
                break;
            case 7:
                controller.submit({CmdResume{}});
                [[fallthrough]];
            default:
                controller.advance(1 + below(20));
        }
        controller.advance(0);  // publishes
    }
    void change_window() {
        switch (below(4)) {
            case 0:
                window_.resize(static_cast<float>(300 + below(2200)), static_cast<float>(200 + below(1200)));
                break;
            case 1: {
                const Panel& panel = panels()[below(panels().size())];
                window_.app().ui().open[panel.id] = true;
                window_.app().ui().focus_panel = panel.id;
                break;
            }
            default: {
                const Action& action = actions()[below(actions().size())];
                if (action.id != ActionId::quit) window_.app().perform(action.id);
            }
        }
    }

    Harness& window_;
    Rng rng_;
};

/// Changes the working folder until the end of the scope.
struct WorkingFolder {
    explicit WorkingFolder(const std::string& path) { std::filesystem::current_path(path); }
    ~WorkingFolder() { std::filesystem::current_path(before); }
    WorkingFolder(const WorkingFolder&) = delete;
    WorkingFolder& operator=(const WorkingFolder&) = delete;
    std::filesystem::path before = std::filesystem::current_path();
};

class RandomInput : public ::testing::TestWithParam<int> {};

TEST_P(RandomInput, LeavesAWindowThatWorks) {
    TemporaryFolder folder;
    ASSERT_TRUE(folder.make("random-input").ok());
    const WorkingFolder working(folder.file(""));  // what is saved goes there
    const char* wanted = std::getenv("DRAFTSCOPE_RANDOM_INPUTS");
    const int inputs = wanted != nullptr ? std::atoi(wanted) : 150;
    Harness window{quiet()};
    // What ImGui forgives and logs is a fault of a panel.
    std::string misuse;
    ImGuiContext& context = *ImGui::GetCurrentContext();
    context.ErrorCallbackUserData = &misuse;
    context.ErrorCallback = [](ImGuiContext* imgui, void* kept, const char* message) {
        const ImGuiWindow* in = imgui->CurrentWindow;
        *static_cast<std::string*>(kept) = (in != nullptr ? in->Name : "") + std::string(": ") + message;
    };
    Hand hand(window, static_cast<std::uint64_t>(GetParam()));
    for (int i = 0; i < inputs; ++i) {
        SCOPED_TRACE(i);
        hand.do_something();
        ASSERT_EQ(misuse, "");
        const UiState& ui = window.app().ui();
        if (ui.round.has_value()) {
            ASSERT_LT(*ui.round, window.controller.snapshot()->rounds.size());
        }
    }
    // The window still does what it is asked.
    ImGui::GetIO().ClearInputKeys();
    ImGui::GetIO().ClearInputMouse();
    window.resize(1600, 1000);
    window.draw_frames(3);
    for (int i = 0; i < 20 && ImGui::GetTopMostPopupModal() != nullptr; ++i) {
        ImGui::ClosePopupToLevel(0, false);
        window.draw_frames(2);
    }
    window.controller.submit({CmdStop{}});
    window.controller.submit({CmdStart{}});
    window.controller.advance(4);
    window.app().perform(ActionId::last_round);
    window.draw_frames(3);
    ASSERT_TRUE(window.app().ui().round.has_value());
    EXPECT_EQ(*window.app().ui().round + 1, window.controller.snapshot()->rounds.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomInput, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace draftscope::test
