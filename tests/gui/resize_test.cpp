#include <fmt/format.h>
#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <stdexcept>

#include "app/gui/shell/layout.h"
#include "tests/gui/harness.h"

/// Tests of the panels' places and sizes in windows of different sizes.
namespace draftscope::test {
namespace {

const ImGuiWindow& find_panel_window(std::string_view id) {
    for (const Panel& panel : panels())
        if (panel.id == id) return *ImGui::FindWindowByName(window_name(panel).c_str());
    throw std::runtime_error("no such panel");
}

class Resize : public ::testing::Test {
  protected:
    Resize() {
        window_.controller.submit({CmdStart{}});
        window_.controller.advance(12);
        window_.draw_frames(4);
    }
    void resize(float width, float height) {
        window_.resize(width, height);
        window_.draw_frames(6);
    }
    Harness window_{quiet()};
};

TEST_F(Resize, ColumnsKeepTheirShares) {
    const float left = find_panel_window("session").Size.x, tree = find_panel_window("draft_tree").Size.x;
    const float tree_height = find_panel_window("draft_tree").Size.y;
    resize(1200, 750);
    EXPECT_NEAR(find_panel_window("session").Size.x, 0.75f * left, 4);
    EXPECT_NEAR(find_panel_window("draft_tree").Size.x, 0.75f * tree, 8);
    EXPECT_GT(find_panel_window("draft_tree").Size.y, 0.6f * tree_height);
    resize(1600, 1000);
    EXPECT_NEAR(find_panel_window("session").Size.x, left, 2) << "the original size restores the layout";
    EXPECT_NEAR(find_panel_window("draft_tree").Size.y, tree_height, 2);
}

TEST_F(Resize, EveryPanelFitsOrScrolls) {
    for (const auto& [width, height] :
         {std::pair{900.f, 600.f}, {1280.f, 720.f}, {1600.f, 1000.f}, {900.f, 1000.f}, {1600.f, 600.f}})
        for (const char* layout : {"explain", "profile", "compare", "choose"}) {
            resize(width, height);
            window_.app().request_layout(layout);
            window_.draw_frames(6);
            const float em = ImGui::GetFontSize();
            for (const Panel& panel : panels()) {
                if (!window_.app().ui().open.at(panel.id)) continue;
                const ImGuiWindow& shown = find_panel_window(panel.id);
                if (!shown.DockTabIsVisible) continue;
                const std::string what = fmt::format("{} {} {}x{}", panel.id, layout, width, height);
                const ImVec2 content = shown.ContentRegionRect.GetSize(), room = shown.InnerRect.GetSize();
                EXPECT_GE(content.x, panel.min_width * em - 1) << what;
                EXPECT_GE(content.y, panel.min_height * em - 1) << what;
                EXPECT_TRUE(content.x <= room.x + 1 || shown.ScrollbarX) << what;
                EXPECT_TRUE(content.y <= room.y + 1 || shown.ScrollbarY) << what;
                EXPECT_GT(room.y, 5 * em) << what;
                EXPECT_GT(room.x, 9 * em) << what;
            }
        }
}

TEST_F(Resize, SmallWindowMergesNeighboursIntoTabs) {
    EXPECT_NE(find_panel_window("session").DockId, find_panel_window("text").DockId);
    resize(900, 600);
    EXPECT_EQ(find_panel_window("session").DockId, find_panel_window("text").DockId);
    EXPECT_EQ(find_panel_window("plane").DockId, find_panel_window("coverage").DockId);
    resize(1600, 1000);
    EXPECT_NE(find_panel_window("session").DockId, find_panel_window("text").DockId);
}

TEST_F(Resize, MovedPanelsStayInPlace) {
    window_.app().ui().open["kernels"] = false;
    ImGui::DockBuilderDockWindow("Log###log", find_panel_window("draft_tree").DockId);
    window_.draw_frames(4);
    ASSERT_EQ(find_panel_window("log").DockId, find_panel_window("draft_tree").DockId);
    const ImGuiID text = find_panel_window("text").DockId;
    resize(900, 600);
    EXPECT_EQ(find_panel_window("log").DockId, find_panel_window("draft_tree").DockId);
    EXPECT_EQ(find_panel_window("text").DockId, text);
    EXPECT_FALSE(window_.app().ui().open["kernels"]) << "closed panels stay closed";
}

TEST_F(Resize, ErrorsAreShownInFullOverThePanels) {
    resize(1280, 720);
    const float before = find_panel_window("draft_tree").Pos.y;
    window_.controller.edit_status().error =
        "Tree: tree: depth=99 is outside 1..32\nShadow heads: --shadow: unknown head " +
        std::string(200, 'x');
    window_.draw_frames(4);
    const ImGuiWindow* error = ImGui::FindWindowByName("##error");
    ASSERT_NE(error, nullptr);
    EXPECT_GT(error->Size.y, 4 * ImGui::GetFontSize()) << "two mistakes, the second one wrapped";
    EXPECT_EQ(find_panel_window("draft_tree").Pos.y, before) << "panels keep their places";
    EXPECT_TRUE(window_.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("##error");
        ctx->ItemClick("Dismiss");
    }));
    EXPECT_FALSE(error->WasActive);
}

}  // namespace
}  // namespace draftscope::test
