#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <algorithm>

#include "tests/gui/harness.h"

// Tests of what the forms say while the user types, and of panels that a layout leaves closed.
namespace draftscope::test {
namespace {

class Forms : public ::testing::Test {
  protected:
    bool in_front(const char* name) const {
        const ImGuiWindow* shown = ImGui::FindWindowByName(name);
        return shown != nullptr && shown->WasActive && shown->DockTabIsVisible;
    }
    /// Runs a script inside the scrolled part of the Session panel.
    bool in_session(const std::function<void(ImGuiTestContext*)>& script) {
        return window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef(ctx->WindowInfo("//Session###session/##scroll").ID);
            script(ctx);
        });
    }
    void pick(const char* typed) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_K);
            ctx->Yield(3);
            ctx->KeyCharsReplaceEnter(typed);
            ctx->Yield(3);
        }));
    }

    Harness window{quiet()};
};

TEST_F(Forms, AMistakeDisablesRunAndTheNearestValueMendsIt) {
    window.controller.check = [](FormCheck& checked) {
        if (checked.values.run.shadow == "slimspc")
            checked.run.push_back(
                {"Shadow heads", "unknown head slimspc; known: full, slimspec", "slimspec"});
    };
    EXPECT_TRUE(in_session([](ImGuiTestContext* ctx) {
        ctx->ItemInput("##shadow");
        ctx->KeyCharsReplace("slimspc");  // not entered: the mistake shows while the user types
        ctx->Yield(3);
        IM_CHECK(ctx->ItemExists("###nearest Shadow heads"));
        IM_CHECK((ctx->ItemInfo("Run").ItemFlags & ImGuiItemFlags_Disabled) != 0);
        IM_CHECK((ctx->ItemInfo("//##tools/Run###run_pause").ItemFlags & ImGuiItemFlags_Disabled) != 0);
    }));
    window.app().perform(ActionId::run_pause);
    window.app().perform(ActionId::step_round);
    window.draw_frames(3);
    EXPECT_TRUE(window.controller.runs.empty());
    EXPECT_EQ(window.app().notice(), "Shadow heads: unknown head slimspc; known: full, slimspec");
    EXPECT_TRUE(in_session([](ImGuiTestContext* ctx) {
        ctx->ItemClick("###nearest Shadow heads");
        ctx->Yield(3);
        IM_CHECK(!ctx->ItemExists("###nearest Shadow heads"));
        ctx->ItemClick("Run");
    }));
    ASSERT_EQ(window.controller.runs.size(), 1u);
    EXPECT_EQ(window.controller.runs[0].shadow, "slimspec");
}

TEST_F(Forms, ANumberOutOfRangeIsShownAndMended) {
    window.controller.check = [](FormCheck& checked) {
        if (checked.values.run.threads > 1024)
            checked.run.push_back({"Threads", "must be 1 to 1024", "1024"});
    };
    EXPECT_TRUE(in_session([](ImGuiTestContext* ctx) {
        ctx->ItemOpen("More");
        ctx->ItemInputValue("More/##threads", 5000);
        ctx->Yield(3);
        ctx->ItemClick("More/###nearest Threads");
    }));
    EXPECT_EQ(window.app().config().threads, 1024);
}

TEST_F(Forms, AnErrorLeadsToItsField) {
    window.controller.edit_status().error = "Limit: must not be negative";
    window.controller.edit_status().error_field = "Threads";
    window.draw_frames(3);
    const ImGuiWindow* box = ImGui::FindWindowByName("##error");
    const ImGuiWindow* tree = ImGui::FindWindowByName("Draft tree###draft_tree");
    ASSERT_NE(box, nullptr);
    EXPECT_GT(box->Pos.y, tree->Pos.y + tree->Size.y) << "the tree and the tabs stay visible";
    ImGuiID active = 0, field = 0;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->ItemClick("//##error/Go to field");
        ctx->Yield(6);
        active = ImGui::GetActiveID();
        ctx->SetRef(ctx->WindowInfo("//Session###session/##scroll").ID);
        field = ctx->ItemInfo("More/##threads").ID;
    }));
    EXPECT_NE(active, 0u);
    EXPECT_EQ(active, field) << "the number can be typed at once";
}

TEST_F(Forms, OtherFormsShowTheirMistakes) {
    window.app().request_layout("choose");
    window.draw_frames(4);
    window.controller.check = [](FormCheck& checked) {
        if (checked.values.kernels && checked.values.kernels->vocab == 0)
            checked.kernels.push_back({"V", "must be at least 1", "1"});
        if (checked.values.sweep && checked.values.sweep->heads == "frspec")
            checked.sweep.push_back({"Heads", "unknown head frspec", "fr-spec"});
    };
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Kernels###kernels");
        ctx->SetRef("Kernels###kernels");
        ctx->ItemInputValue("V", 0);
        ctx->Yield(3);
        IM_CHECK((ctx->ItemInfo("Measure##kernels").ItemFlags & ImGuiItemFlags_Disabled) != 0);
        ctx->ItemClick("###nearest V");
        ctx->Yield(3);
        ctx->ItemClick("Measure##kernels");
        ctx->WindowFocus("//Sweep###sweep");
        ctx->SetRef("Sweep###sweep");
        ctx->ItemInputValue("##heads", "frspec");
        ctx->ItemInputValue("##recording", "demo.recording");
        ctx->ItemInputValue("##profile", "machine.json");
        ctx->Yield(3);
        IM_CHECK((ctx->ItemInfo("Sweep##start").ItemFlags & ImGuiItemFlags_Disabled) != 0);
        ctx->ItemClick("###nearest Heads");
        ctx->Yield(3);
        ctx->ItemClick("Sweep##start");
    }));
    ASSERT_EQ(window.controller.count<CmdMeasureKernels>(), 1);
    ASSERT_EQ(window.controller.count<CmdSweep>(), 1);
    EXPECT_EQ(std::get<CmdSweep>(window.controller.received.back()).request.heads, "fr-spec");
}

TEST_F(Forms, PanelsWithNothingToShowAreClosedUntilTheyAreWanted) {
    const auto open = [&](const char* id) { return window.app().ui().open.at(id); };
    for (const auto& [layout, shown] :
         {std::pair{"explain", false}, {"profile", false}, {"compare", true}, {"choose", true}}) {
        window.app().request_layout(layout);
        window.draw_frames(4);
        for (const char* id : {"compare", "sweep", "advisor", "matrix"})
            EXPECT_EQ(open(id), shown) << layout << ": " << id;
    }
    window.app().request_layout("explain");
    window.draw_frames(4);
    EXPECT_TRUE(in_front("Draft tree###draft_tree"));
    pick("panel: matrix");
    EXPECT_TRUE(in_front("Matrix###matrix"));
    window.app().perform(ActionId::find_fastest);
    window.draw_frames(4);
    EXPECT_TRUE(in_front("Advisor###advisor"));
    window.controller.submit({CmdOpenOther{"b.dscope"}});
    window.draw_frames(4);
    EXPECT_TRUE(in_front("Compare###compare")) << "another capture was opened";
    EXPECT_TRUE(in_front("Text###text")) << "it is not behind the log";
}

TEST_F(Forms, ThePaletteFindsRoundsAndModels) {
    window.controller.edit_status().models = {"/models/tiny.gguf"};
    window.controller.submit({CmdStart{}});
    window.controller.advance(12);
    window.draw_frames(4);
    pick("round 3");
    EXPECT_EQ(window.app().ui().round, 2u);
    pick("model tiny");
    EXPECT_EQ(window.app().config().model, "/models/tiny.gguf");
}

}  // namespace
}  // namespace draftscope::test
