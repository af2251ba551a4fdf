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
        ctx->ItemOpen("More: search a recording###form");
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

/// The button starts the search, its steps show while it runs, and Stop ends it.
TEST(AdvisorPanel, FindsTheFastestSettingInOneClick) {
    Harness window(advisor_layout());
    window.app().config().max_new = 256;
    window.app().config().drafter = "eagle2";
    const auto click_find = [&](const char* button) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef("Advisor###advisor");
            ctx->ItemClick(button);
            ctx->Yield(2);
        }));
    };
    click_find("Find the fastest setting##find");
    ASSERT_EQ(window.controller.count<CmdFindFastest>(), 1);
    const RunConfig& config = std::get<CmdFindFastest>(window.controller.received.back()).config;
    EXPECT_EQ(config.drafter, "eagle2");
    EXPECT_EQ(config.max_new, 64);
    window.controller.edit_status().finding = FindStep::search;
    window.draw_frames(3);
    click_find("Stop##find");
    EXPECT_EQ(window.controller.count<CmdStop>(), 1);
}

TEST(AdvisorPanel, TriesTheAdviceWithItsOwnModelAndPlainDecoding) {
    Harness window(advisor_layout());
    const auto sweep = synthetic_sweep();
    const SweepSetting& advised = sweep->settings[*sweep->advice.choice.chosen];
    window.controller.edit_status().sweeps = {sweep};
    window.app().config().save = "run.dscope";
    window.draw_frames(3);
    const RunConfig before = window.app().config();
    click(window, "Try it##advice");
    ASSERT_EQ(window.controller.runs.size(), 1u);
    RunConfig tried = sweep->run;  // model, precision, threads and sampling of the sweep, not of the session
    tried.prompt = before.prompt;
    tried.drafter = advised.drafter;
    tried.head = advised.head;
    tried.tree = advised.tree;
    tried.limit = tried.baseline = 7;
    tried.balanced = true;
    tried.calibration_rounds = 0;
    tried.artefacts = {"fr-spec=ranking.txt"};
    EXPECT_EQ(window.controller.runs[0], tried);
    EXPECT_EQ(tried.model, "/models/other.gguf");
    EXPECT_EQ(window.app().config(), before) << "trying does not change the session";
    const ImGuiWindow* compare = ImGui::FindWindowByName("Compare###compare");
    ASSERT_NE(compare, nullptr);
    EXPECT_TRUE(compare->DockTabIsVisible) << "Compare is in front";
    click(window, "Use for the next run##advice");
    tried.limit = tried.baseline = 0;
    tried.balanced = false;
    tried.calibration_rounds = RunConfig().calibration_rounds;
    EXPECT_EQ(window.app().config(), tried);
}

TEST(AdvisorPanel, SaysThatThisMachineHasFewerThreads) {
    Harness window(advisor_layout());
    auto sweep = std::make_shared<SweepReport>(*synthetic_sweep());
    sweep->run.threads = 4096;
    window.controller.edit_status().sweeps = {sweep};
    window.draw_frames(3);
    click(window, "Use for the next run##advice");
    EXPECT_EQ(window.app().config().threads, 0) << "all cores";
}

/// Compare takes the tried run and its baseline although other runs were compared before.
TEST(AdvisorPanel, CompareTakesTheNewestRunAndItsBaseline) {
    Harness window(advisor_layout());
    window.controller.edit_status().sweeps = {synthetic_sweep()};
    const auto run = [&](const char* head, const char* drafter = "eagle3") {
        RunConfig config;
        config.head = head;
        config.drafter = drafter;
        window.controller.submit({CmdStart{config}});
        window.controller.advance(6);
        window.controller.submit({CmdStop{}});
        window.draw_frames(4);
    };
    run("full");
    run("fr-spec:v=8192");
    click(window, "Try it##advice");
    window.controller.advance(6);
    window.controller.submit({CmdStop{}});
    run("full", "baseline");
    window.draw_frames(6);
    const auto report = window.app().status().comparison;
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->choice.a.run_id, 4) << "plain decoding";
    EXPECT_EQ(report->choice.b.run_id, 3);
}

TEST(AdvisorPanel, AdvisesPlainDecoding) {
    Harness window(advisor_layout());
    auto sweep = std::make_shared<SweepReport>(*synthetic_sweep());
    sweep->advice.plain = true;
    sweep->advice.summary = "Decode without a drafter.";
    window.controller.edit_status().sweeps = {sweep};
    window.draw_frames(3);
    click(window, "Use for the next run##advice");
    EXPECT_EQ(window.app().config().drafter, "none");
}

}  // namespace
}  // namespace draftscope::test
