#include <fmt/format.h>
#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "base/log.h"
#include "capture/rejections.h"
#include "tests/gui/harness.h"

// Tests of panel contents: wrapped lines, a text that starts with a whole line, one spelling per name.
namespace draftscope::test {
namespace {

class Panels : public ::testing::Test {
  protected:
    const ImGuiWindow* find_window(const char* path) {
        const ImGuiWindow* found = nullptr;
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) { found = ctx->WindowInfo(path).Window; }));
        return found;
    }
    Harness window{quiet()};
};

TEST_F(Panels, LogLinesWrap) {
    log_warning("a message {}", std::string(400, 'm') + std::string(60, ' ') + std::string(200, 'n'));
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) { ctx->WindowFocus("//Log###log"); }));
    const ImGuiWindow* lines = find_window("//###log/##lines");
    ASSERT_NE(lines, nullptr);
    EXPECT_LE(lines->ContentSize.x, lines->InnerRect.GetWidth() + 1) << "no line is wider than the panel";
    EXPECT_GT(lines->ContentSize.y, 6 * ImGui::GetFontSize());
}

/// A click on a missed token selects the round that missed it first.
TEST_F(Panels, AMissedTokenLeadsToItsRound) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(60);
    window.draw_frames(4);
    const RejectionSummary found = summarise_rejections(window.app().snapshot(), window.app().ui().run_id);
    ASSERT_FALSE(found.missed.empty());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Rejections###rejections");
        ctx->Yield(3);
        const auto named = [](const ImGuiWindow* one) {
            return std::strstr(one->Name, "/missed_") != nullptr;
        };
        const auto table = std::ranges::find_if(GImGui->Windows, named);
        if (table == GImGui->Windows.end()) return;
        const ImVec2 corner = (*table)->InnerRect.Min;
        ctx->MouseMoveToPos({corner.x + 20, corner.y + 1.4f * ImGui::GetTextLineHeightWithSpacing()});
        ctx->MouseClick();
        ctx->Yield(2);
    }));
    ASSERT_TRUE(window.app().ui().round.has_value());
    const auto is_first = [&](const MissedToken& token) {
        return token.first_round == *window.app().ui().round;
    };
    EXPECT_TRUE(std::ranges::any_of(found.missed, is_first));
    EXPECT_FALSE(window.app().ui().follow);
}

/// Returns the texts of the next frame.
std::string text_of_frame(ImGuiTestContext* ctx) {
    ImGui::LogToBuffer();
    GImGui->LogWindow = nullptr;  // or the end of the window that is open here ends the log
    ctx->Yield();
    std::string text = GImGui->LogBuffer.c_str();
    ImGui::LogFinish();
    return text;
}

TEST_F(Panels, SteppingMarksTheNodesThatAreDraftedFromNext) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(3);
    std::string stepping, node, finished;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Draft tree###draft_tree");
        ctx->KeyPress(ImGuiKey_F11);
        ctx->Yield(3);
        stepping = text_of_frame(ctx);
        const ImRect box = ctx->ItemInfo("//###draft_tree/tree").RectFull;
        const float em = ImGui::GetFontSize();
        for (float y = 2; y < 24 && node.find("in the beam") == std::string::npos; y += 0.5f) {
            ctx->MouseMoveToPos({box.Min.x + 14.4f * em, box.Min.y + y * em});
            ctx->MouseClick();
            node = text_of_frame(ctx);
        }
        ctx->KeyPress(ImGuiKey_F10);
        ctx->Yield(3);
        finished = text_of_frame(ctx);
    }));
    EXPECT_NE(stepping.find("the marked ones are drafted from next"), std::string::npos) << stepping;
    EXPECT_NE(node.find(", score -"), std::string::npos) << node;
    EXPECT_NE(node.find("in the beam: drafted from next"), std::string::npos) << node;
    EXPECT_EQ(finished.find("drafted from next"), std::string::npos);
}

TEST_F(Panels, AWhatIfShowsThePhasesOfItsDrafting) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(6);
    window.draw_frames(2);
    const Snapshot& shown = window.app().snapshot();
    ASSERT_TRUE(window.app().ui().round);
    const RoundRow& round = shown.rounds[*window.app().ui().round].row;
    WhatIfResult result;
    result.wanted.run_id = round.run_id;
    result.wanted.prompt_id = round.prompt_id;
    result.wanted.context_length = round.context_length;
    result.wanted.setting.drafter = "eagle3";
    result.snapshot = synthetic_snapshot(1, SyntheticOptions{.seed = 5});
    window.controller.edit_status().what_ifs = {result};
    const std::string choice =
        fmt::format("what if: eagle3: {} accepted##0", result.snapshot->rounds[0].row.accepted);
    bool before = true, after = false;
    std::string phases;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Draft tree###draft_tree");
        before = ctx->ItemExists("//###draft_tree/drafting, what if");
        ctx->ItemClick("//###draft_tree/##trees");
        ctx->Yield(2);
        ctx->ItemClick(fmt::format("//$FOCUSED/{}", choice).c_str());
        ctx->Yield(3);
        after = ctx->ItemExists("//###draft_tree/drafting, what if");
        ctx->MouseMove("//###draft_tree/drafting, what if");
        ctx->Yield(2);
        phases = text_of_frame(ctx);
    }));
    EXPECT_FALSE(before);
    EXPECT_TRUE(after);
    ASSERT_NE(phases.find("drafting, what if:"), std::string::npos) << phases;
    phases = phases.substr(phases.find("drafting, what if:"));
    phases = phases.substr(0, phases.find("The what-if was drafted"));
    EXPECT_NE(phases.find("backbone "), std::string::npos) << phases;
    EXPECT_EQ(phases.find("verify "), std::string::npos);
}

TEST_F(Panels, TextViewStartsWithAWholeLine) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(200);
    window.draw_frames(4);
    const ImGuiWindow* output = find_window("//###text/##output");
    ASSERT_NE(output, nullptr);
    ASSERT_GT(output->ScrollMax.y, 0) << "the text is longer than the view";
    const float line = std::round(ImGui::GetFontSize() * 1.38f);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->MouseMoveToPos(output->InnerRect.GetCenter());
        ctx->MouseWheelY(1);
        ctx->Yield(4);
    }));
    const float above = output->Scroll.y / line;
    EXPECT_NEAR(above, std::round(above), 0.02f);
    EXPECT_NEAR(output->InnerRect.GetHeight() / line, std::round(output->InnerRect.GetHeight() / line),
                0.05f);
}

TEST_F(Panels, ANewRunShowsItsTextFromTheStart) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(500);
    window.draw_frames(4);
    const ImGuiWindow* output = find_window("//###text/##output");
    ASSERT_NE(output, nullptr);
    ASSERT_GT(output->Scroll.y, 0);
    window.controller.submit({CmdStart{}});
    window.draw_frames(4);
    for (int i = 0; i < 4; ++i) {
        window.controller.advance(1);
        window.draw_frames(3);
        EXPECT_EQ(output->Scroll.y, 0) << "round " << i + 1;
    }
}

TEST_F(Panels, TheSelectedTokenStaysInViewInAnotherLayout) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(500);
    window.draw_frames(4);
    const ImGuiWindow* output = find_window("//###text/##output");
    ASSERT_NE(output, nullptr);
    const float end = output->Scroll.y;
    ASSERT_GT(end, 0);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_Home);
        ctx->Yield(4);
    }));
    ASSERT_EQ(output->Scroll.y, 0);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {  // scrolled away by hand
        ctx->MouseMoveToPos(output->InnerRect.GetCenter());
        ctx->MouseWheelY(-30);
        ctx->Yield(4);
    }));
    ASSERT_GT(output->Scroll.y, 0);
    window.app().request_layout("choose");
    window.resize(1500, 800);
    window.draw_frames(8);
    EXPECT_LT(output->Scroll.y, 4 * ImGui::GetFontSize()) << "the first lines are in view";
}

TEST_F(Panels, ABarOfPhasesDoesNotMoveUnderThePointer) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(500);
    window.draw_frames(4);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//###phases");
        const ImRect bars = ctx->ItemInfo("//###phases/bars").RectFull;
        const ImVec2 at(bars.Min.x + bars.GetWidth() * 0.3f, bars.GetCenter().y);
        ctx->MouseMoveToPos(at);
        ctx->MouseClick();
        ctx->Yield(3);
        const auto first = window.app().ui().round;
        IM_CHECK(first.has_value());
        IM_CHECK(*first + 20 < window.app().snapshot().rounds.size());
        ctx->MouseClick();
        ctx->Yield(3);
        IM_CHECK(window.app().ui().round == first);
    }));
}

TEST_F(Panels, ListsUseCommandLineNamesOfHeadsAndDrafters) {
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
        ctx->ItemClick("##head");
        ctx->ItemClick("//$FOCUSED/fr-spec:v=8192");
        ctx->ItemClick("##drafter");
        ctx->ItemClick("//$FOCUSED/ngram");
    }));
    EXPECT_EQ(window.app().config().head, "fr-spec:v=8192");
    EXPECT_EQ(window.app().config().drafter, "ngram");
}

TEST_F(Panels, HeadsAreOfferedWithDraftersThatHaveTheirWeights) {
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//###session/##scroll").ID);
        for (const auto& [drafter, disabled] : {std::pair("eagle2", true), {"ngram", false}}) {
            ctx->ItemClick("##drafter");
            ctx->ItemClick(fmt::format("//$FOCUSED/{}", drafter).c_str());
            ctx->ItemClick("##head");
            IM_CHECK_EQ((ctx->ItemInfo("//$FOCUSED/coral").ItemFlags & ImGuiItemFlags_Disabled) != 0,
                        disabled);
            ctx->ItemClick("//$FOCUSED/full");
        }
    }));
}

/// Returns the first two cells of each copied row of the Phases table, from the column "n" on.
std::vector<std::pair<std::string, int>> copied_phases(Harness& window) {
    std::string copied;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->WindowFocus("//Phases###phases");
        const ImGuiWindow* phases = ctx->WindowInfo("//Phases###phases").Window;
        ctx->MouseMoveToPos({phases->Pos.x + 60, phases->Pos.y + 120});
        ctx->MouseClick(ImGuiMouseButton_Right);
        ctx->ItemClick("//$FOCUSED/Copy its tables");
        ctx->Yield(3);
        copied = ImGui::GetClipboardText();
    }));
    std::vector<std::pair<std::string, int>> rows;
    for (std::size_t at = copied.find('\n') + 1; at < copied.size(); at = copied.find('\n', at) + 1) {
        const std::size_t tab = copied.find('\t', at);
        rows.emplace_back(copied.substr(at, tab - at), std::atoi(copied.c_str() + tab + 1));
    }
    return rows;
}

TEST_F(Panels, CopiedTablesKeepTheSortedOrder) {
    window.controller.submit({CmdStart{}});
    window.controller.advance(30);
    window.draw_frames(4);
    const auto sort = [&] {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->WindowFocus("//Phases###phases");
            ctx->SetRef("Phases###phases");
            ctx->ItemClick("phases/$$1/n");
            ctx->Yield(2);
        }));
    };
    const auto given = copied_phases(window);
    ASSERT_GT(given.size(), 5u);
    EXPECT_EQ(given.front().first, "backbone");
    const auto count = [](const std::pair<std::string, int>& row) { return row.second; };
    sort();
    auto sorted = copied_phases(window);
    EXPECT_TRUE(std::ranges::is_sorted(sorted, std::greater(), count));
    EXPECT_NE(sorted, given);
    sort();
    EXPECT_TRUE(std::ranges::is_sorted(copied_phases(window), std::less(), count));
    sort();
    EXPECT_EQ(copied_phases(window), given) << "the third click restores the order";
}

}  // namespace
}  // namespace draftscope::test
