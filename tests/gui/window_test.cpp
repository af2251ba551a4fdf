#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/gui/models/rounds.h"
#include "app/gui/shell/layout.h"
#include "base/clock.h"
#include "tests/gui/harness.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::test {
namespace {

TEST(Window, StartsTheDemoOnceWhenNothingIsOpened) {
    GuiOptions options;
    Harness window(options);
    window.draw_frames(5);
    ASSERT_EQ(window.controller.runs.size(), 1u);
    EXPECT_EQ(window.controller.runs[0].drafter, "eagle3");
    EXPECT_FALSE(window.controller.runs[0].prompt.empty());
    EXPECT_EQ(window.controller.runs[0].prompt, demo_prompt);
    EXPECT_EQ(window.controller.runs[0].tree, "depth=3,topk=4,nodes=12") << "there is a tree to see";
    EXPECT_EQ(window.controller.runs[0].baseline, 1) << "so that the speed-up is measured";
    EXPECT_EQ(window.app().config(), window.controller.runs[0]);
    EXPECT_TRUE(std::get<CmdStart>(window.controller.received.front()).forecast);
}

TEST(Window, TheDemoEndsOnAnInstructiveRejection) {
    Harness window(GuiOptions{});
    window.draw_frames(3);
    window.controller.advance(500);
    window.draw_frames(2);
    ASSERT_EQ(window.controller.status().state, JobState::idle);
    const Snapshot& snapshot = window.app().snapshot();
    ASSERT_LT(instructive_rejection(snapshot, 1).value_or(999), snapshot.rounds.size() - 1);
    EXPECT_EQ(window.app().ui().round, instructive_rejection(snapshot, 1));
}

/// The first round of the demo, with the guide's window settings.
class SlowPlay : public ::testing::Test {
  protected:
    SlowPlay() {
        GuiOptions options;
        options.settings_file = folder_.file("settings.json");
        window = std::make_unique<Harness>(options);
    }
    /// Draws until the state is held or not, or 5 s have passed.
    void draw_while_held() {
        const TimeNs until = monotonic_ns() + 5 * ns_per_s;
        while (window->controller.status().state == JobState::held && monotonic_ns() < until) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            window->draw_frames(1);
        }
    }
    testing::ScratchFolder folder_;
    std::unique_ptr<Harness> window;
};

TEST_F(SlowPlay, ShowsTheFirstRoundLevelByLevelThenRuns) {
    EXPECT_EQ(window->controller.status().state, JobState::held);
    const TimeNs start = monotonic_ns();
    draw_while_held();
    EXPECT_EQ(window->controller.status().state, JobState::running);
    EXPECT_EQ(window->controller.count<CmdStepLevel>(), 5) << "four levels and the end of the round";
    EXPECT_EQ(window->app().snapshot().rounds.size(), 1u);
    EXPECT_NEAR(seconds(monotonic_ns() - start), 2, 1);
}

TEST_F(SlowPlay, AKeyOrClickEndsIt) {
    EXPECT_TRUE(window->run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_F11);
        ctx->Yield(3);
    }));
    EXPECT_EQ(window->controller.status().state, JobState::held) << "the key steps";
    EXPECT_EQ(window->controller.count<CmdStepLevel>(), 2);
    EXPECT_EQ(window->controller.count<CmdResume>(), 0);
}

TEST_F(SlowPlay, AClickElsewhereLetsItRun) {
    EXPECT_TRUE(window->run([&](ImGuiTestContext* ctx) {
        ctx->ItemClick("//##guide/Got it");
        ctx->Yield(3);
    }));
    EXPECT_EQ(window->controller.status().state, JobState::running);
}

TEST(Window, TheRightTabsAreInFrontAtEveryStart) {
    struct Expected {
        const char* layout;
        std::vector<const char*> front;
    };
    const std::vector<Expected> all = {
        {"explain", {"session", "text", "draft_tree", "plane", "timeline", "phases", "coverage", "rounds"}},
        {"profile", {"session", "text", "draft_tree", "plane", "timeline", "phases", "coverage", "rounds"}},
        {"compare", {"session", "text", "compare", "draft_tree", "phases", "plane", "coverage", "rounds"}},
        {"choose", {"session", "text", "sweep", "advisor", "matrix", "phases", "draft_tree", "rounds"}}};
    const auto check = [](const Expected& expected, const char* when) {
        for (const Panel& panel : panels()) {
            const ImGuiWindow* shown = ImGui::FindWindowByName(window_name(panel).c_str());
            const bool wanted = std::ranges::any_of(
                expected.front, [&](const char* id) { return std::string_view(id) == panel.id; });
            const bool visible = shown != nullptr && shown->WasActive && shown->DockTabIsVisible;
            EXPECT_EQ(visible, wanted) << expected.layout << ", " << when << ": " << panel.id;
        }
    };
    for (const Expected& expected : all) {
        std::string ini;
        {
            Harness first(quiet());
            first.app().request_layout(expected.layout);
            first.draw_frames(6);
            check(expected, "first start");
            EXPECT_TRUE(first.run([](ImGuiTestContext* ctx) { ctx->WindowFocus("//Log###log"); }));
            ini = first.layout();
        }
        const testing::ScratchFolder folder;
        GuiOptions options = quiet();
        options.settings_file = folder.file("settings.json");
        testing::write_text(options.settings_file,
                            fmt::format(R"({{"guide_seen": true, "layout": "{}"}})", expected.layout));
        for (const char* when : {"second start", "third start"}) {
            Harness later(options, ini);
            later.draw_frames(6);
            check(expected, when);
            ini = later.layout();
        }
    }
}

TEST(Window, DoesNotStartTheDemoWhenAFileIsOpened) {
    GuiOptions options;
    options.files = {"/captures/a.dscope"};
    Harness window(options);
    EXPECT_TRUE(window.controller.runs.empty());
    EXPECT_EQ(window.controller.count<CmdOpenFile>(), 1);
    EXPECT_EQ(window.app().snapshot().source, "/captures/a.dscope");
    EXPECT_TRUE(window.app().ui().round.has_value());
}

TEST(Window, RunPauseContinueAndStopByButton) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##tools");
        ctx->ItemClick("###run_pause");
        ctx->Yield(2);
    }));
    EXPECT_EQ(window.controller.status().state, JobState::running);
    window.controller.advance(3);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##tools");
        ctx->ItemClick("###run_pause");
    }));
    EXPECT_EQ(window.controller.status().state, JobState::held);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##tools");
        ctx->ItemClick("###run_pause");
    }));
    EXPECT_EQ(window.controller.status().state, JobState::running);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##tools");
        ctx->ItemClick("Stop");
    }));
    EXPECT_EQ(window.controller.status().state, JobState::idle);
    EXPECT_EQ(window.controller.count<CmdStop>(), 1);
}

TEST(Window, StepsByKeys) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_Space);
        ctx->KeyPress(ImGuiKey_F11);
        ctx->KeyPress(ImGuiMod_Shift | ImGuiKey_F11);
        ctx->KeyPress(ImGuiKey_F10);
        ctx->KeyPress(ImGuiKey_F10);
    }));
    EXPECT_EQ(window.controller.count<CmdPause>(), 1);
    EXPECT_EQ(window.controller.count<CmdStepLevel>(), 1);
    EXPECT_EQ(window.controller.count<CmdStepPhase>(), 1);
    EXPECT_EQ(window.controller.count<CmdStepRound>(), 2);
    EXPECT_EQ(window.app().snapshot().rounds.size(), 2u);
    EXPECT_EQ(window.app().ui().round, 1u);
}

TEST(Window, StepFromIdleDoesOneRoundAndHolds) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) { ctx->KeyPress(ImGuiKey_F10); }));
    EXPECT_EQ(window.controller.runs.size(), 1u);
    EXPECT_EQ(window.controller.status().state, JobState::held);
    EXPECT_EQ(window.app().snapshot().rounds.size(), 1u);
    EXPECT_EQ(window.app().ui().round, 0u);
}

TEST(Window, EveryPanelShowsTheRoundInFlight) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(3);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_F11);
        ctx->Yield(3);
        IM_CHECK(in_flight_selected(window.app().snapshot(), window.app().ui()));
        ctx->KeyPress(ImGuiKey_Comma);
        ctx->Yield(2);
        IM_CHECK_EQ(window.app().ui().round.value_or(99), 2u);
        // The last cell of the strip is the round in flight.
        const ImRect box = ctx->ItemInfo("//###rounds/**/##cells").RectFull;
        ctx->MouseMoveToPos(ImVec2(box.Max.x - box.GetWidth() / 8, box.GetCenter().y));
        ctx->MouseClick();
        ctx->Yield(2);
        IM_CHECK(in_flight_selected(window.app().snapshot(), window.app().ui()));
        ctx->KeyPress(ImGuiKey_F10);
        ctx->Yield(2);
    }));
    EXPECT_FALSE(window.app().ui().in_flight);
    EXPECT_EQ(window.app().ui().round, 3u);
}

TEST(Window, EscapeAndButtonClearTheRange) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(6);
    const auto drag = [](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//###timeline");
        const ImRect box = ctx->ItemInfo("//###timeline/lanes").RectFull;
        ctx->MouseMoveToPos(ImVec2(box.Min.x + box.GetWidth() * 0.4f, box.Min.y + 40));
        ctx->MouseDown();
        ctx->MouseMoveToPos(ImVec2(box.Min.x + box.GetWidth() * 0.7f, box.Min.y + 40));
        ctx->MouseUp();
        ctx->Yield(2);
    };
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        drag(ctx);
        IM_CHECK(window.app().ui().range.has_value());
        ctx->KeyPress(ImGuiKey_Escape);
        ctx->Yield(2);
        IM_CHECK(!window.app().ui().range.has_value());
        drag(ctx);
        IM_CHECK(window.app().ui().range.has_value());
        ctx->ItemClick("//###timeline/x##leave_range");
        ctx->Yield(2);
        IM_CHECK(!window.app().ui().range.has_value());
    }));
}

TEST(Window, KeysMoveTheSelectionAndEndFollowing) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(10);
    window.draw_frames(2);
    ASSERT_EQ(window.app().ui().round, 9u);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_Comma);
        ctx->KeyPress(ImGuiKey_Comma);
        ctx->KeyPress(ImGuiKey_Period);
    }));
    EXPECT_EQ(window.app().ui().round, 8u);
    EXPECT_FALSE(window.app().ui().follow);
    window.controller.advance(2);
    window.draw_frames(2);
    EXPECT_EQ(window.app().ui().round, 8u) << "the selected round stays selected during the run";
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) { ctx->KeyPress(ImGuiKey_L); }));
    EXPECT_EQ(window.app().ui().round, window.app().snapshot().rounds.size() - 1);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) { ctx->KeyPress(ImGuiKey_Home); }));
    EXPECT_EQ(window.app().ui().round, 0u);
}

TEST(Window, TypingInTheFilterDoesNotTriggerKeys) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_K);
        ctx->KeyChars("light ");
        ctx->Yield();
        ctx->KeyPress(ImGuiKey_Enter);
    }));
    EXPECT_EQ(window.controller.count<CmdPause>(), 0) << "the space was text";
    EXPECT_EQ(window.app().settings().theme, ThemeId::light) << "the palette ran the typed command";
}

TEST(Window, AutoTreeSelectsAutoHead) {
    Harness window(quiet());
    RunConfig& config = window.app().config();
    const auto choose = [](ImGuiTestContext* ctx, const char* tree) {
        ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
        ctx->ItemClick("##tree");
        ctx->ItemClick(tree);
        ctx->Yield(2);
    };
    EXPECT_TRUE(window.run(
        [&](ImGuiTestContext* ctx) { choose(ctx, "//$FOCUSED/fastest by measuring (takes some seconds)"); }));
    EXPECT_EQ(config.tree, "auto");
    EXPECT_EQ(config.head, "auto");
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) { choose(ctx, "//$FOCUSED/chain"); }));
    EXPECT_EQ(config.tree, "chain=4");
    EXPECT_EQ(config.head, "full") << "the automatic head requires the automatic tree";
}

TEST(Window, OpensAFileByTyping) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_O);
        ctx->SetRef("Open capture");
        ctx->ItemInputValue("##name", "no_such_file.dscope");
        ctx->Yield();
        IM_CHECK_EQ(window.controller.count<CmdOpenFile>(), 0);
        ctx->ItemInputValue("##name", DS_SOURCE_DIR "/README.md");
        ctx->Yield(2);
        IM_CHECK_EQ(window.controller.count<CmdOpenFile>(), 1);
        IM_CHECK(!window.controller.status().error.empty());
        ctx->SetRef("##error");
        ctx->ItemClick("Dismiss");
    })) << "a missing file gives an error that can be dismissed";
}

TEST(Window, WatchesTheServerOfTheDialog) {
    Harness window(quiet());
    window.app().config().max_new = 33;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##MainMenuBar");
        ctx->MenuClick("File/Watch a server...");
        ctx->SetRef("Watch a server");
        ctx->ItemInput("Prompt file");
        ctx->KeyCharsReplace("prompts.jsonl");
        IM_CHECK_EQ(window.controller.count<CmdWatchServer>(), 0);
        ctx->ItemInputValue("Address", "http://127.0.0.1:18080");  // with Enter
        ctx->Yield(2);
    }));
    ASSERT_EQ(window.controller.count<CmdWatchServer>(), 1);
    const auto& command = std::get<CmdWatchServer>(window.controller.received.back());
    EXPECT_EQ(command.url, "http://127.0.0.1:18080");
    EXPECT_EQ(command.prompts.prompts_file, "prompts.jsonl");
    EXPECT_EQ(command.prompts.max_new, 33);
    EXPECT_EQ(command.prompts.model, "") << "the session's model is not the server's";
}

TEST(Window, WatchesTheServerOfTheCommandLine) {
    GuiOptions options = quiet();
    options.watch = "http://127.0.0.1:18080";
    options.watched.prompt = "hello";
    options.run_demo = true;
    Harness window(options);
    window.draw_frames(3);
    ASSERT_EQ(window.controller.count<CmdWatchServer>(), 1);
    EXPECT_EQ(window.controller.count<CmdStart>(), 0);
}

TEST(Window, SavesACopyToTheTypedPath) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_S);
        ctx->SetRef("Save a copy");
        ctx->ItemInputValue("##name", DS_BINARY_DIR "/copy.dscope");
        ctx->Yield(2);
    }));
    ASSERT_EQ(window.controller.count<CmdSaveCopy>(), 1);
    EXPECT_EQ(std::get<CmdSaveCopy>(window.controller.received.back()).path, DS_BINARY_DIR "/copy.dscope");
}

TEST(Window, ClickInTheStripSelectsARound) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(12);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        const ImGuiTestItemInfo cells = ctx->ItemInfo("//###rounds/**/##cells");
        IM_CHECK_SILENT(cells.ID != 0);
        const ImRect box = cells.RectFull;
        ctx->MouseMoveToPos(ImVec2(box.Min.x + box.GetWidth() * 3.5f / 12, box.Min.y + box.GetHeight() / 2));
        ctx->MouseClick();
    }));
    EXPECT_EQ(window.app().ui().round, 3u);
    EXPECT_FALSE(window.app().ui().follow);
}

TEST(Window, SessionFieldsReachTheRun) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->ItemClick("//###session/**/##prompt");
        ctx->KeyCharsReplace("Say hello.");
        ctx->ItemInputValue("//###session/**/##max_new", 17);
        ctx->ScrollToBottom(ctx->WindowInfo("//###session/##scroll").ID);
        ctx->ItemClick("//###session/**/Run");
    }));
    ASSERT_EQ(window.controller.runs.size(), 1u);
    EXPECT_EQ(window.controller.runs[0].prompt, "Say hello.");
    EXPECT_EQ(window.controller.runs[0].max_new, 17);
}

TEST(Window, ClickOnATokenSelectsItsRound) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(12);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_Home);
        ctx->Yield(3);
        const ImGuiWindow* output = ctx->WindowInfo("//###text/##output").Window;
        IM_CHECK_SILENT(output != nullptr);
        // Visible lines below the first belong to later rounds: the output has three lines.
        ctx->MouseMoveToPos(ImVec2(output->InnerRect.Min.x + 30, output->InnerRect.GetCenter().y + 10));
        ctx->MouseClick();
    }));
    ASSERT_TRUE(window.app().ui().round.has_value());
    EXPECT_GT(*window.app().ui().round, 0u);
    EXPECT_LT(*window.app().ui().round, 12u);
}

TEST(Window, BreakpointsAreSetAndCleared) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->ItemOpen("//###session/**/###breakpoints");
        ctx->ItemClick("//###session/**/Rejection at depth");
        ctx->ItemClick("//###session/**/Rejection at depth");
        ctx->ItemClick("//###session/**/Phase slower than its p99");
        ctx->ItemInputValue("//###session/**/##break_text", "end");
    }));
    std::vector<CmdBreakpoints> sent;
    for (const Command& command : window.controller.received)
        if (const auto* points = std::get_if<CmdBreakpoints>(&command)) sent.push_back(*points);
    ASSERT_GE(sent.size(), 4u);
    EXPECT_EQ(sent[0].rejection_depth, 1);
    EXPECT_FALSE(sent[1].rejection_depth.has_value());
    EXPECT_TRUE(sent[2].slow_phase);
    EXPECT_EQ(sent.back(), (CmdBreakpoints{std::nullopt, false, true, false, "end", {}, {}, {}}));
}

TEST(Window, EveryActionCanBePerformedInEveryState) {
    for (const bool started : {false, true}) {
        Harness window(quiet());
        if (started) {
            window.controller.submit({CmdStart{}});
            window.controller.advance(4);
        }
        bool may_quit = false;
        for (const Action& entry : actions()) {
            if (entry.id == ActionId::quit) may_quit = window.app().unsaved_rounds() == 0;
            window.app().perform(entry.id);
            window.draw_frames(2);
            window.run([](ImGuiTestContext* ctx) { ctx->PopupCloseAll(); });
        }
        EXPECT_EQ(window.app().wants_quit(), may_quit);
    }
}

TEST(Window, AllLayoutsShowEveryOpenPanel) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(5);
    for (const char* layout : {"profile", "compare", "explain"}) {
        window.app().request_layout(layout);
        window.draw_frames(4);
        for (const Panel& panel : panels()) {
            if (!window.app().ui().open.at(panel.id)) continue;
            const std::string name = std::string(panel.title) + "###" + panel.id;
            const ImGuiWindow* found = ImGui::FindWindowByName(name.c_str());
            ASSERT_NE(found, nullptr) << layout << ": " << name;
            EXPECT_NE(found->DockNode, nullptr) << layout << ": " << name;
        }
    }
}

TEST(Window, KernelsAreMeasuredAndShown) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Kernels###kernels");
        ctx->SetRef("Kernels###kernels");
        ctx->ItemClick("Measure##kernels");
    }));
    ASSERT_EQ(window.controller.count<CmdMeasureKernels>(), 1);
    auto report = std::make_shared<KernelReport>();
    report->probe_before = 20;
    report->ops = {{"head", "int8", 1, 5, 1000, 900, 29e6}, {"low-rank r=72", "int8", 4, 5, 150, 140, 4e6}};
    window.controller.edit_status().kernels = report;
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Kernels###kernels");
        ctx->ItemClick("##rows");
        ctx->ItemClick("//$FOCUSED/M = 4");
    }));
}

TEST(Window, LossesAreShown) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(2);
    window.controller.add_loss("span_ring_full", 12);
    window.draw_frames(2);
    EXPECT_EQ(losses_text(window.app().snapshot(), window.app().ui().run_id), "lost: 12 span_ring_full");
}

}  // namespace
}  // namespace draftscope::test
