#include "app/gui/models/finding.h"

#include <gtest/gtest.h>

#include "base/phase.h"
#include "tests/gui/harness.h"
#include "tests/support/capture_builder.h"

/// Bookmarks, marks of the Rounds strip, the histogram of a phase and the view of a batch, used by mouse and
/// keys.
namespace draftscope::test {
namespace {

TEST(FindingThings, BookmarksAreSetEditedVisitedAndRemoved) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(12);
    window.draw_frames(2);
    const auto bookmark = [&](std::size_t round) {
        const auto all = find_round_notes(window.app().snapshot(), window.app().ui().run_id);
        const RoundNotes* notes = find_notes(all, round);
        return notes == nullptr ? std::nullopt : notes->bookmark;
    };
    const auto press = [&](ImGuiKeyChord chord) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->KeyPress(chord);
            ctx->Yield(3);
        }));
    };
    const auto set = [&](ImGuiKeyChord chord, const char* text) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->KeyPress(chord);
            ctx->Yield(3);
            IM_CHECK(ImGui::GetTopMostPopupModal() != nullptr);
            ctx->KeyCharsReplaceEnter(text);
            ctx->Yield(3);
        }));
    };
    window.app().ui().select_round(3, 12);
    window.draw_frames(2);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiKey_B);
        ctx->Yield(3);
        ctx->KeyChars("not kept");
        ctx->KeyPress(ImGuiKey_Escape);
        ctx->Yield(3);
        IM_CHECK(ImGui::GetTopMostPopupModal() == nullptr);
    }));
    EXPECT_FALSE(bookmark(3));
    EXPECT_EQ(window.controller.count<CmdAddNote>(), 0);
    set(ImGuiKey_B, "odd draft");
    EXPECT_EQ(bookmark(3), "odd draft");
    window.app().ui().select_round(8, 12);
    set(ImGuiKey_B, "");
    EXPECT_EQ(bookmark(8), "");
    set(ImGuiMod_Shift | ImGuiKey_B, "second text");
    EXPECT_EQ(bookmark(8), "second text");
    press(ImGuiMod_Shift | ImGuiKey_N);
    EXPECT_EQ(window.app().ui().round, 3u);
    press(ImGuiKey_N);
    EXPECT_EQ(window.app().ui().round, 8u);
    press(ImGuiKey_N);
    EXPECT_EQ(window.app().ui().round, 8u);
    EXPECT_EQ(window.app().notice(), "No further one in this run.");
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_K);
        ctx->KeyChars("go to bookmark odd");
        ctx->Yield();
        ctx->KeyPress(ImGuiKey_Enter);
        ctx->Yield(2);
    }));
    EXPECT_EQ(window.app().ui().round, 3u);
    press(ImGuiKey_B);
    EXPECT_FALSE(bookmark(3)) << "B again removes it";
    window.app().ui().select_round(8, 12);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Shift | ImGuiKey_B);
        ctx->Yield(2);
        ctx->ItemClick("//Bookmark/Remove");
        ctx->Yield(2);
    }));
    EXPECT_FALSE(bookmark(8));
}

/// The tooltip of a round has a second line, which names what stopped the run there.
TEST(FindingThings, TheStripNamesTheBreakpoint) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(12);
    const RoundRow row = window.controller.snapshot()->rounds[4].row;
    window.controller.submit({CmdAddNote{{row.run_id, row.id, 0, "breakpoint: end of text"}}});
    const auto tooltip_height = [&](int cell) {
        float height = 0;
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            const ImRect box = ctx->ItemInfo("//###rounds/**/##cells").RectFull;
            const float part = (static_cast<float>(cell) + 0.5f) / 12;
            ctx->MouseMoveToPos({box.Min.x + box.GetWidth() * part, box.GetCenter().y});
            ctx->Yield(3);
            for (const ImGuiWindow* shown : ImGui::GetCurrentContext()->Windows)
                if ((shown->Flags & ImGuiWindowFlags_Tooltip) != 0 && shown->WasActive)
                    height = shown->Size.y;
        }));
        return height;
    };
    const float other = tooltip_height(5), stopped = tooltip_height(4);
    EXPECT_GT(other, 0);
    EXPECT_GT(stopped, other + 0.8f * ImGui::GetFontSize());
}

TEST(FindingThings, TheHistogramOfAPhaseSelectsTheSlowestRoundOfABar) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(40);
    window.draw_frames(2);
    const auto slowest = find_slow_round(window.app().snapshot(), window.app().ui().run_id, std::nullopt,
                                         static_cast<int>(Phase::verify));
    ASSERT_TRUE(slowest.has_value());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("Phases###phases");
        IM_CHECK(!ctx->ItemExists("histogram"));
        ctx->ItemClick("**/verify");
        for (int bins = 0; bins < 2; ++bins) {  // logarithmic, then linear
            window.app().ui().round = *slowest == 0 ? 1 : 0;
            const ImRect box = ctx->ItemInfo("histogram").RectFull;
            ctx->MouseMoveToPos({box.Max.x - 3, box.Max.y - 0.25f * box.GetHeight()});
            ctx->MouseClick();
            ctx->Yield(2);
            IM_CHECK_EQ(window.app().ui().round, slowest);
            ctx->ItemClick("log bins");
        }
        ctx->KeyPress(ImGuiKey_Escape);
        ctx->Yield(2);
        IM_CHECK(!ctx->ItemExists("histogram"));
        ctx->ItemClick("**/head");
        IM_CHECK(ctx->ItemExists("histogram"));
        ctx->ItemClick("x##histogram");
        ctx->Yield(2);
        IM_CHECK(!ctx->ItemExists("histogram"));
    }));
}

TEST(FindingThings, SlowestRoundsByAPhaseInTheMenuAndByKey) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(30);
    window.draw_frames(2);
    const int head = static_cast<int>(Phase::head);
    const auto slow = [&](std::optional<std::size_t> from, std::optional<int> phase) {
        return find_slow_round(window.app().snapshot(), window.app().ui().run_id, from, phase);
    };
    const auto first = slow({}, head), second = slow(first, head);
    ASSERT_NE(second, slow(first, std::nullopt)) << "or the test proves nothing";
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("##MainMenuBar");
        ctx->MenuClick("Go/Slowest round by phase/head");
        IM_CHECK_EQ(window.app().ui().round, first);
        ctx->KeyPress(ImGuiKey_M);
        ctx->Yield(2);
        IM_CHECK_EQ(window.app().ui().round, second);
        ctx->KeyPress(ImGuiKey_Home);
        ctx->Yield(2);
        ctx->KeyPress(ImGuiKey_M);
        ctx->Yield(2);
    }));
    EXPECT_EQ(window.app().ui().round, slow({}, std::nullopt)) << "from elsewhere, the slowest step";
}

TEST(FindingThings, ABookmarkOfASavedRunIsUnsaved) {
    Harness window(quiet());
    window.controller.submit({CmdStart{}});
    window.controller.advance(6);
    window.draw_frames(2);
    EXPECT_EQ(window.app().unsaved_rounds(), 6u);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_S);
        ctx->ItemInputValue("//Save a copy/##name", DS_BINARY_DIR "/copy.dscope");
        ctx->Yield(3);
    }));
    EXPECT_EQ(window.app().unsaved_rounds(), 0u);
    const RoundRow row = window.app().snapshot().rounds[2].row;
    window.controller.submit({CmdAddNote{{row.run_id, row.id, 0, "bookmark: look"}}});
    window.draw_frames(2);
    EXPECT_EQ(window.app().unsaved_rounds(), 1u);
}

/// Four sequences of 30 steps: a row each, a column a step.
TEST(FindingThings, AClickInTheRowsOfABatchSelectsTheRound) {
    testing::CaptureBuilder capture;
    for (int i = 0; i < 4; ++i) capture.prompt(PromptRow{});
    for (int s = 0; s < 30; ++s) {
        StepRecord record;
        record.step.start_ns = s * 1000;
        record.step.end_ns = s * 1000 + 900;
        for (int i = 0; i < 4; ++i) {
            record.rounds.push_back(testing::round_of());
            record.rounds.back().round.prompt_id = i + 1;
        }
        capture.step(record);
    }
    Harness window(quiet());
    window.controller.show(std::make_shared<const Snapshot>(capture.snapshot()));
    window.draw_frames(3);
    const auto click = [&](int column, int row) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            const ImRect box = ctx->ItemInfo("//###rounds/**/##cells").RectFull;
            const float rows = box.GetHeight() - 0.85f * ImGui::GetFontSize();  // the rest is below them
            ctx->MouseMoveToPos({box.Min.x + box.GetWidth() * (static_cast<float>(column) + 0.5f) / 30,
                                 box.Min.y + rows * (static_cast<float>(row) + 0.5f) / 4});
            ctx->MouseClick();
        }));
        return window.app().ui().round;
    };
    EXPECT_EQ(click(0, 0), 0u);
    EXPECT_EQ(click(0, 3), 3u);
    EXPECT_EQ(click(17, 2), 17u * 4 + 2);
    EXPECT_EQ(click(29, 1), 29u * 4 + 1);
}

}  // namespace
}  // namespace draftscope::test
