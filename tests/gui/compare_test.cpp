#include <gtest/gtest.h>

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
