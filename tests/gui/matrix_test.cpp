#include <gtest/gtest.h>

#include "tests/gui/harness.h"
#include "tests/gui/synthetic_sweep.h"

namespace draftscope::test {
namespace {

TEST(MatrixPanel, SwitchesBetweenRunsSweepAndPublishedRows) {
    GuiOptions options;
    options.run_demo = false;
    options.layout = "choose";
    Harness window(options);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Matrix###matrix");
        IM_CHECK(!ctx->ItemExists("tau"));  // nothing to compare
    }));
    window.controller.edit_status().sweeps = {synthetic_sweep()};
    window.draw_frames(3);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Matrix###matrix");
        IM_CHECK(ctx->ItemExists("x AR"));
        IM_CHECK(!ctx->ItemExists("of the sweep"));  // there are no runs
        ctx->ItemClick("x AR");
        ctx->ItemClick("published");
        ctx->ItemClick("published");
        ctx->ItemClick("##group");
        ctx->KeyPress(ImGuiKey_Escape);
    }));
    window.controller.submit({CmdStart{}});
    window.controller.advance(20);
    window.draw_frames(3);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Matrix###matrix");
        ctx->ItemClick("of the sweep");
        ctx->Yield(2);
        ctx->ItemClick("tau");
    }));
}

}  // namespace
}  // namespace draftscope::test
