#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <algorithm>

#include "tests/gui/harness.h"

// Tests of keys, mouse and frames: input of fields, shortcuts, and no frames without changes.
namespace draftscope::test {
namespace {

constexpr const char* tree_text = "depth=6,topk=10,nodes=60";

class Input : public ::testing::Test {
  protected:
    void SetUp() override {
        window.controller.submit({CmdStart{}});
        window.controller.advance(10);
        window.controller.submit({CmdStop{}});
        window.draw_frames(2);
    }
    ImVec2 centre(const char* item) {
        ImVec2 at;
        EXPECT_TRUE(
            window.run([&](ImGuiTestContext* ctx) { at = ctx->ItemInfo(item).RectFull.GetCenter(); }));
        return at;
    }
    static bool shows_tooltip() {
        const auto& windows = ImGui::GetCurrentContext()->Windows;
        return std::any_of(windows.begin(), windows.end(), [](const ImGuiWindow* w) {
            return (w->Flags & ImGuiWindowFlags_Tooltip) != 0 && w->Active && !w->Hidden;
        });
    }
    static void key(ImGuiKey name, bool down) { ImGui::GetIO().AddKeyEvent(name, down); }
    static bool in_front(const char* name) {
        const ImGuiWindow* found = ImGui::FindWindowByName(name);
        return found != nullptr && found->DockTabIsVisible;
    }
    std::string tree_after_typing(const char* text) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
            ctx->ItemClick("##tree");
            ctx->ItemClick("//$FOCUSED/as text");
            ctx->ItemClick("##spec");
            ctx->KeyCharsReplace(text);
        }));
        return window.app().config().tree;
    }

    Harness window{quiet()};
};

TEST_F(Input, TooltipAppearsWhileTheMouseRestsThenDrawingStops) {
    const ImVec2 at = centre("//##tools/Follow");
    EXPECT_TRUE(window.draw_until_rest());
    EXPECT_FALSE(shows_tooltip());
    ImGui::GetIO().AddMousePosEvent(at.x, at.y);
    EXPECT_TRUE(window.draw_until_rest());
    EXPECT_TRUE(shows_tooltip());
}

TEST_F(Input, FastTypingReachesTheOpenedField) {
    key(ImGuiMod_Ctrl, true);
    key(ImGuiKey_S, true);
    key(ImGuiMod_Ctrl, false);  // released before the key: still Ctrl+S
    key(ImGuiKey_S, false);
    key(ImGuiMod_Ctrl, true);
    key(ImGuiKey_A, true);
    key(ImGuiMod_Ctrl, false);
    key(ImGuiKey_A, false);
    for (const char c : std::string(DS_BINARY_DIR "/typed.dscope"))
        ImGui::GetIO().AddInputCharacter(static_cast<unsigned char>(c));
    key(ImGuiKey_Enter, true);
    key(ImGuiKey_Enter, false);
    EXPECT_TRUE(window.draw_until_rest());
    ASSERT_EQ(window.controller.count<CmdSaveCopy>(), 1);
    EXPECT_EQ(std::get<CmdSaveCopy>(window.controller.received.back()).path, DS_BINARY_DIR "/typed.dscope");
}

TEST_F(Input, FieldKeepsFocusAfterAnError) {
    const auto type = [&](ImGuiKey command, const std::string& path) {
        for (const auto& [name, down] : {std::pair{ImGuiKey(ImGuiMod_Ctrl), true},
                                         {command, true},
                                         {command, false},
                                         {ImGuiKey(ImGuiMod_Ctrl), false}})
            key(name, down);
        if (command == ImGuiKey_S) {
            EXPECT_TRUE(window.draw_until_rest());
        }
        for (const char c : path) ImGui::GetIO().AddInputCharacter(static_cast<unsigned char>(c));
        key(ImGuiKey_Enter, true);
        key(ImGuiKey_Enter, false);
        EXPECT_TRUE(window.draw_until_rest());
    };
    type(ImGuiKey_S, "/no/such/folder/a.dscope");
    EXPECT_EQ(window.controller.count<CmdSaveCopy>(), 0);
    type(ImGuiKey_A, DS_BINARY_DIR "/better.dscope");
    ASSERT_EQ(window.controller.count<CmdSaveCopy>(), 1);
    EXPECT_EQ(std::get<CmdSaveCopy>(window.controller.received.back()).path, DS_BINARY_DIR "/better.dscope");
}

TEST_F(Input, FindFieldReceivesTextTypedAfterItsShortcut) {
    const bool follow = window.app().ui().follow;
    key(ImGuiMod_Ctrl, true);
    key(ImGuiKey_F, true);
    key(ImGuiKey_F, false);
    key(ImGuiMod_Ctrl, false);
    key(ImGuiKey_L, true);
    ImGui::GetIO().AddInputCharacter('l');
    key(ImGuiKey_L, false);
    EXPECT_TRUE(window.draw_until_rest());
    EXPECT_EQ(window.app().ui().follow, follow);
    EXPECT_STREQ(ImGui::GetCurrentContext()->InputTextState.TextA.Data, "l");
}

TEST_F(Input, TreeTextFieldStaysTextWhileItParses) {
    const auto round = window.app().ui().round;
    EXPECT_EQ(tree_after_typing(tree_text), tree_text);
    EXPECT_EQ(window.app().ui().round, round) << "the commas were text";
    EXPECT_EQ(tree_after_typing("auto"), "auto") << "\"auto\" is text, too";
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
        ctx->ItemClick("##spec");
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_A);
        ctx->KeyPress(ImGuiKey_Delete);
        ctx->KeyChars("chain=3");
    })) << "the field stays when its text is empty";
    EXPECT_EQ(window.app().config().tree, "chain=3");
}

TEST_F(Input, TreeFieldsAppearWhenChosen) {
    tree_after_typing(tree_text);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
        ctx->ItemClick("##tree");
        ctx->ItemClick("//$FOCUSED/tree");
        ctx->ItemInputValue("##depth", 2);
    }));
    EXPECT_EQ(window.app().config().tree, "depth=2,topk=4,nodes=12");
}

TEST_F(Input, TextKeysAreShortcutsOnlyOutsideFields) {
    const auto round = window.app().ui().round;
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->ItemClick("//###session/**/##prompt");
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_A);
        for (const ImGuiKey letter : {ImGuiKey_Comma, ImGuiKey_L, ImGuiKey_F, ImGuiKey_Space, ImGuiKey_Home})
            ctx->KeyPress(letter);
        ctx->KeyPress(ImGuiMod_Shift | ImGuiKey_Space);
        ctx->KeyPress(ImGuiMod_Shift | ImGuiKey_Slash);
    }));
    EXPECT_EQ(window.app().ui().round, round);
    EXPECT_EQ(window.controller.runs.size(), 1u);
    EXPECT_EQ(ImGui::GetTopMostPopupModal(), nullptr);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//###draft_tree");
        ctx->KeyPress(ImGuiKey_Comma);
    }));
    EXPECT_EQ(window.app().ui().round, *round - 1);
}

TEST_F(Input, TextTabStaysInFrontAfterGuideAndErrorClose) {
    window.app().perform(ActionId::guide);
    window.controller.edit_status().error = "something went wrong";
    window.draw_frames(3);
    ASSERT_TRUE(in_front("Text###text"));
    // Checked in the script: at its end the test engine moves the focus.
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        for (const char* button : {"//##guide/Got it", "//##error/Dismiss"}) {
            ctx->ItemClick(button);
            ctx->Yield(4);
            IM_CHECK(in_front("Text###text"));
        }
    }));
    EXPECT_TRUE(window.app().settings().guide_seen);
}

}  // namespace
}  // namespace draftscope::test
