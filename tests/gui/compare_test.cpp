#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gui/harness.h"

namespace draftscope::test {
namespace {

constexpr const char* panel = "Compare###compare";

GuiOptions two_files(const char* second) {
    GuiOptions options;
    options.run_demo = false;
    options.layout = "compare";
    options.files = {"/captures/a.dscope", second};
    return options;
}

TEST(ComparePanel, ComparesTheTwoOpenedFiles) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(8);
    EXPECT_EQ(window.controller.count<CmdOpenFile>(), 1);
    EXPECT_EQ(window.controller.count<CmdOpenOther>(), 1);
    EXPECT_EQ(window.app().snapshot().source, "/captures/a.dscope") << "the first stays shown";
    ASSERT_EQ(window.controller.count<CmdCompare>(), 1) << "asked for once, not every frame";
    const auto report = window.app().status().comparison;
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->choice.a.source, "/captures/a.dscope");
    EXPECT_EQ(report->choice.b.source, "/captures/b.dscope");
    ASSERT_TRUE(report->comparison.has_value()) << report->refusal;
    EXPECT_FALSE(report->comparison->verdict.empty());
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(panel);
        ctx->ItemClick("Swap##compare");
        ctx->Yield(3);
    }));
    EXPECT_EQ(window.controller.count<CmdCompare>(), 2);
    EXPECT_EQ(window.app().status().comparison->choice.a.source, "/captures/b.dscope");
}

TEST(PlanePanel, HasTheHeadsOfTheOtherOpenedFile) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(4);
    const auto has_choice = [&] {
        bool found = false;
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef("Acceptance-cost plane###plane");
            found = ctx->ItemExists("other runs");
        }));
        return found;
    };
    const auto switch_choice = [&] {
        EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
            ctx->SetRef("Acceptance-cost plane###plane");
            ctx->ItemClick("other runs");
            ctx->Yield(3);
        }));
    };
    EXPECT_TRUE(has_choice());
    switch_choice();
    EXPECT_TRUE(has_choice()) << "to show them again";
    switch_choice();
    window.controller.edit_status().others.clear();
    window.draw_frames(3);
    EXPECT_FALSE(has_choice()) << "no other run";
}

/// Returns the tokens that the selected round committed, by their places in the text.
std::vector<int> selected_positions(App& app) {
    std::vector<int> out;
    const RowId round = app.snapshot().rounds[*app.ui().round].row.id;
    for (const TokenRow& token : app.snapshot().tokens)
        if (token.round_id == round) out.push_back(token.position);
    return out;
}

TEST(ComparePanel, ShowsTheSameTextInTheOtherRunAndBack) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(8);
    App& app = window.app();
    for (std::size_t round = 0; round < 8; ++round) {
        app.ui().select_round(round, app.snapshot().rounds.size());
        window.draw_frames(2);
        const int first = selected_positions(app).front();
        EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
            ctx->KeyPress(ImGuiKey_T);
            ctx->Yield(3);
        }));
        ASSERT_EQ(app.snapshot().source, "/captures/b.dscope");
        EXPECT_EQ(std::ranges::count(selected_positions(app), first), 1) << round;
        EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
            ctx->SetRef(panel);
            ctx->ItemClick("###other");
            ctx->Yield(3);
        }));
        ASSERT_EQ(app.snapshot().source, "/captures/a.dscope");
        EXPECT_EQ(app.ui().round, round) << "the way back is to the round it came from";
    }
}

TEST(ComparePanel, AnotherRoundOfTheOtherRunLeadsToItsOwnText) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(8);
    App& app = window.app();
    const auto press = [&] {
        EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
            ctx->KeyPress(ImGuiKey_T);
            ctx->Yield(3);
        }));
    };
    app.ui().select_round(1, app.snapshot().rounds.size());
    press();
    app.ui().select_round(7, app.snapshot().rounds.size());
    const int first = selected_positions(app).front();
    press();
    EXPECT_EQ(app.snapshot().source, "/captures/a.dscope");
    EXPECT_EQ(std::ranges::count(selected_positions(app), first), 1);
}

TEST(ComparePanel, SelectsTheFirstDifferenceOfTheTexts) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(3);
    auto shorter = *synthetic_snapshot(6, {.seed = 98, .head = "slimspec:rank=72", .category = "stored"});
    shorter.source = "/captures/b.dscope";
    const auto tokens = static_cast<int>(shorter.tokens.size());
    window.controller.edit_status().others = {std::make_shared<const Snapshot>(std::move(shorter))};
    window.draw_frames(3);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(panel);
        ctx->ItemClick("Texts");
        ctx->Yield(2);
        ctx->SetRef(ctx->WindowInfo("//Compare###compare/prompts").ID);
        ctx->ItemClick("**/##prompt");
        ctx->Yield(3);
    }));
    App& app = window.app();
    EXPECT_EQ(app.snapshot().source, "/captures/a.dscope");
    EXPECT_EQ(std::ranges::count(selected_positions(app), tokens), 1)
        << "B ended after so many tokens, and A has a further one";
}

TEST(ComparePanel, AnAddedCaptureBecomesBUnlessTheUserChose) {
    for (const bool swaps : {false, true}) {
        GuiOptions options;
        options.run_demo = false;
        options.layout = "compare";
        Harness window(options);
        for (int run = 0; run < 2; ++run) {
            window.controller.submit({CmdStart{}});
            window.controller.advance(5);
            window.controller.submit({CmdStop{}});
        }
        window.draw_frames(4);
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef(panel);
            if (swaps) ctx->ItemClick("Swap##compare");
        }));
        window.controller.submit({CmdOpenOther{"/captures/b.dscope"}});  // as a slowly loaded file
        window.draw_frames(4);
        EXPECT_EQ(window.app().status().comparison->choice.b.source, swaps ? "" : "/captures/b.dscope");
    }
}

TEST(ComparePanel, AThirdFileClosesTheComparedOne) {
    Harness window(two_files("/captures/b.dscope"));
    window.draw_frames(4);
    EXPECT_EQ(window.app().status().others.size(), 1u);
    window.controller.submit({CmdOpenFile{"/captures/c.dscope"}});
    window.draw_frames(4);
    EXPECT_TRUE(window.app().status().others.empty());
    EXPECT_EQ(window.app().snapshot().source, "/captures/c.dscope");
}

TEST(ComparePanel, ShowsRefusalAndForcesOnRequest) {
    Harness window(two_files("/captures/tier1.dscope"));
    window.draw_frames(8);
    const auto refused = window.app().status().comparison;
    ASSERT_NE(refused, nullptr);
    EXPECT_FALSE(refused->comparison.has_value());
    EXPECT_TRUE(refused->may_force);
    EXPECT_EQ(refused->refusal.find("--"), std::string::npos) << "the button beside it says how";
    EXPECT_NE(refused->refusal.find("tier (T0 and T1)"), std::string::npos) << refused->refusal;
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(panel);
        ctx->ItemClick("Compare anyway");
        ctx->Yield(3);
    }));
    const auto forced = window.app().status().comparison;
    ASSERT_TRUE(forced->comparison.has_value());
    EXPECT_TRUE(forced->comparison->forced);
    EXPECT_EQ(window.controller.count<CmdCompare>(), 2);
}

TEST(ComparePanel, ComparesALiveRunOnRequest) {
    GuiOptions options;
    options.run_demo = false;
    options.layout = "compare";
    Harness window(options);
    RunConfig config;
    window.controller.submit({CmdStart{config}});
    window.controller.submit({CmdStop{}});
    config.head = "slimspec:rank=72";
    window.controller.submit({CmdStart{config}});
    window.controller.advance(5);
    window.draw_frames(8);
    EXPECT_EQ(window.controller.count<CmdCompare>(), 0);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(panel);
        ctx->ItemClick("Compare recorded rounds");
    }));
    EXPECT_EQ(window.controller.count<CmdCompare>(), 1);
}

}  // namespace
}  // namespace draftscope::test
