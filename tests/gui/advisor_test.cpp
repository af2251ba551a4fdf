#include <gtest/gtest.h>
#include <imgui_internal.h>

#include "tests/gui/harness.h"
#include "tests/gui/synthetic_sweep.h"

namespace draftscope::test {
namespace {

GuiOptions advisor_layout() {
    GuiOptions options;
    options.run_demo = false;
    options.layout = "choose";
    return options;
}

void click(Harness& window, const char* button) {
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//Advisor###advisor/##advice").ID);
        ctx->ItemClick(button);
        ctx->Yield(2);
    }));
}

TEST(AdvisorPanel, StartsASearch) {
    Harness window(advisor_layout());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Advisor###advisor");
        ctx->ItemInputValue("##recording", "demo.recording");
        ctx->ItemInputValue("##profile", "machine.json");
        ctx->ItemClick("Search##advise");
    }));
    ASSERT_EQ(window.controller.count<CmdSweep>(), 1);
    const SweepRequest& request = std::get<CmdSweep>(window.controller.received.back()).request;
    EXPECT_TRUE(request.search);
    EXPECT_EQ(request.heads, "") << "every head that has its files";
    EXPECT_EQ(request.recording, "demo.recording");
}

TEST(AdvisorPanel, TriesTheAdvisedSettingNextToThePresentOne) {
    Harness window(advisor_layout());
    const auto sweep = synthetic_sweep();
    const SweepSetting& advised = sweep->settings[*sweep->advice.chosen];
    window.controller.edit_status().sweeps = {sweep};
    window.app().config().save = "run.dscope";
    window.draw_frames(3);
    const RunConfig before = window.app().config();
    click(window, "Try it##advice");
    ASSERT_EQ(window.controller.count<CmdTry>(), 1);
    for (const Command& command : window.controller.received)
        if (const auto* both = std::get_if<CmdTry>(&command)) {
            EXPECT_EQ(both->present.drafter, before.drafter);
            EXPECT_EQ(both->present.head, before.head);
            EXPECT_EQ(both->present.save, "");
            EXPECT_EQ(both->advised.head, advised.head);
            EXPECT_EQ(both->advised.tree, advised.tree);
            EXPECT_EQ(both->advised.prompt, before.prompt);
        }
    EXPECT_EQ(window.app().config(), before) << "trying does not change the session";
    const ImGuiWindow* compare = ImGui::FindWindowByName("Compare###compare");
    ASSERT_NE(compare, nullptr);
    EXPECT_TRUE(compare->DockTabIsVisible) << "Compare is in front";
    click(window, "Use for the next run##advice");
    EXPECT_EQ(window.app().config().head, advised.head);
    EXPECT_EQ(window.app().config().tree, advised.tree);
}

/// The fake controller runs both; Compare takes them although other runs were compared before.
TEST(AdvisorPanel, CompareTakesTheNewestRuns) {
    Harness window(advisor_layout());
    window.controller.edit_status().sweeps = {synthetic_sweep()};
    const auto run = [&](const char* head) {
        RunConfig config;
        config.head = head;
        window.controller.submit({CmdStart{config}});
        window.controller.advance(6);
        window.controller.submit({CmdStop{}});
        window.draw_frames(4);
    };
    run("full");
    run("fr-spec:v=8192");
    click(window, "Try it##advice");
    run("full");
    run("slimspec:rank=72");
    window.draw_frames(6);
    const auto report = window.app().status().comparison;
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->choice.a.run_id, 3);
    EXPECT_EQ(report->choice.b.run_id, 4);
}

TEST(AdvisorPanel, AdvisesPlainDecoding) {
    Harness window(advisor_layout());
    auto sweep = std::make_shared<SweepView>(*synthetic_sweep());
    sweep->advice.plain = true;
    sweep->advice.summary = "Decode without a drafter.";
    window.controller.edit_status().sweeps = {sweep};
    window.draw_frames(3);
    click(window, "Use for the next run##advice");
    EXPECT_EQ(window.app().config().drafter, "none");
}

}  // namespace
}  // namespace draftscope::test
