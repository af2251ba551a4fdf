#include "app/gui/models/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/gui/harness.h"
#include "tests/gui/synthetic_sweep.h"

namespace draftscope::test {
namespace {

GuiOptions choose_layout() {
    GuiOptions options;
    options.run_demo = false;
    options.layout = "choose";
    return options;
}

/// A window that shows a sweep.
struct SweepWindow : Harness {
    SweepWindow() : Harness(choose_layout()) {
        controller.edit_status().sweeps = {sweep};
        draw_frames(3);
    }
    const std::shared_ptr<const SweepReport> sweep = synthetic_sweep();
    const SweepSettings settings = sweep->settings;
};

const SettingReplay* last_replay(const Commands& commands) {
    for (auto command = commands.rbegin(); command != commands.rend(); ++command)
        if (const auto* replay = std::get_if<CmdReplaySetting>(&*command)) return &replay->setting;
    return nullptr;
}

TEST(SweepPanel, StartsAndStopsASweep) {
    Harness window(choose_layout());
    window.controller.edit_status().profiles = {"/profiles/machine.json"};
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Sweep###sweep");
        ctx->ItemInputValue("##recording", "demo.recording");
        ctx->ItemClick("##profile/##known");
        ctx->ItemClick("//$FOCUSED/machine.json");
        ctx->ItemInputValue("##heads", "full,fr-spec:v=1024|4096");
        ctx->ItemClick("Sweep##start");
    }));
    ASSERT_EQ(window.controller.count<CmdSweep>(), 1);
    const SweepRequest& request = std::get<CmdSweep>(window.controller.received.back()).request;
    EXPECT_EQ(request.recording, "demo.recording");
    EXPECT_EQ(request.profile, "/profiles/machine.json");
    EXPECT_EQ(request.heads, "full,fr-spec:v=1024|4096");
    EXPECT_FALSE(request.search);
    window.controller.edit_status().state = JobState::loading;
    window.controller.edit_status().activity = "sweeping: eagle3 x full, top-k 1";
    window.controller.edit_status().progress = 0.4;
    window.draw_frames(2);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Sweep###sweep");
        ctx->ItemClick("Stop##sweep");
    }));
    EXPECT_EQ(window.controller.count<CmdStop>(), 1);
}

/// Clicks on a setting in a tab of the panel, then on both buttons of its details.
void click_setting(Harness& window, const char* tab, const std::string& item) {
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef("Sweep###sweep");
        ctx->ItemClick(tab);
        ctx->Yield(2);
        const ImGuiID plot = ctx->WindowInfo("//Sweep###sweep/##plot").ID;
        const ImGuiID details = ctx->WindowInfo("//Sweep###sweep/##details").ID;
        ctx->SetRef(item.starts_with("heat:") ? ctx->WindowInfo("//Sweep###sweep/##plot/##heat").ID : plot);
        ctx->ItemClick(item.substr(item.find(':') + 1).c_str());
        ctx->Yield(2);
        ctx->SetRef(details);
        ctx->ItemClick("Use for the next run");
        ctx->ItemClick("Show its rounds");
    }));
}

TEST(SweepPanel, ClickOnASettingShowsItAndItsRounds) {
    SweepWindow window;
    const SweepSettings settings = window.settings;
    const auto expect_clicked = [&](std::size_t row, const char* what) {
        const SweepSetting& setting = settings[row];
        EXPECT_EQ(window.app().config().drafter, "eagle3") << what;
        EXPECT_EQ(window.app().config().head, setting.head) << what;
        EXPECT_EQ(window.app().config().tree, setting.tree) << what;
        const SettingReplay* replay = last_replay(window.controller.received);
        ASSERT_NE(replay, nullptr) << what;
        EXPECT_EQ(replay->recording, "/recordings/demo");
        EXPECT_EQ(replay->head, setting.head) << what;
        EXPECT_EQ(replay->tree, setting.tree) << what;
        EXPECT_EQ(replay->conversations, 7u);
        EXPECT_EQ(replay->conversation, 0u);
    };
    const std::size_t last = sweep_front(settings, 1).back();
    click_setting(window, "Front", "plot:$$" + std::to_string(last) + "/setting");
    expect_clicked(last, "front");
    const SweepCurve curve = sweep_curves(settings, "rank", {1, std::nullopt}).front();
    const std::size_t middle = curve.points[1].second;
    click_setting(window, "Curves", "plot:speed marks/$$" + std::to_string(middle) + "/setting");
    expect_clicked(middle, "curves");
    const SweepHeatMap map = sweep_heat_map(settings, "rank", "v", 1);
    EXPECT_TRUE(map.rows.empty());
    click_setting(window, "Settings", "plot:settings/$$3/###row");
    expect_clicked(3, "list");
}

/// Returns the rows of the list of settings that are in view, from the top.
std::vector<std::size_t> rows_in_view(SweepWindow& window) {
    std::vector<std::pair<float, std::size_t>> found;
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##plot").ID);
        for (const std::size_t row : rows_of_batch(window.settings, 1)) {
            const std::string item = "settings/$$" + std::to_string(row) + "/###row";
            if (ctx->ItemExists(item.c_str()))
                found.emplace_back(ctx->ItemInfo(item.c_str()).RectFull.Min.y, row);
        }
    }));
    std::ranges::sort(found);
    std::vector<std::size_t> rows;
    for (const auto& [y, row] : found) rows.push_back(row);
    return rows;
}

TEST(SweepPanel, HeadingsSortTheSettingsAndArrowsMoveTheSelection) {
    SweepWindow window;
    const auto click = [&](const char* item) {
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->SetRef("Sweep###sweep");
            ctx->ItemClick("Settings");
            ctx->Yield(2);
            ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##plot").ID);
            if (item != nullptr) ctx->ItemClick(item);
            ctx->Yield(2);
        }));
    };
    const auto nodes = [&](std::size_t row) { return window.settings[row].shape.nodes; };
    click(nullptr);
    const std::vector<std::size_t> given = rows_in_view(window);
    ASSERT_GT(given.size(), 8u);
    EXPECT_TRUE(std::ranges::is_sorted(given)) << "the fastest first";
    click("settings/$$3/nodes");
    EXPECT_TRUE(std::ranges::is_sorted(rows_in_view(window), std::greater(), nodes));
    EXPECT_EQ(nodes(rows_in_view(window).front()), 12) << "as numbers: 12 is more than 9";
    click("settings/$$3/nodes");
    EXPECT_TRUE(std::ranges::is_sorted(rows_in_view(window), std::less(), nodes));
    EXPECT_EQ(nodes(rows_in_view(window).front()), 2);
    click("settings/$$3/nodes");
    EXPECT_EQ(rows_in_view(window), given) << "the third click restores the order";
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##plot").ID);
        ctx->ItemClick(("settings/$$" + std::to_string(given[2]) + "/###row").c_str());
        ctx->KeyPress(ImGuiKey_DownArrow);
        ctx->Yield(2);
        ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##details").ID);
        ctx->ItemClick("Use for the next run");
    }));
    EXPECT_EQ(window.app().config().tree, window.settings[given[3]].tree);
    EXPECT_EQ(window.app().config().head, window.settings[given[3]].head);
}

TEST(SweepPanel, AnotherBatchHasItsOwnFront) {
    SweepWindow window;
    const SweepSettings settings = window.settings;
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Sweep###sweep");
        ctx->ItemClick("##batch");
        ctx->ItemClick("//$FOCUSED/batch 4");
        ctx->Yield(2);
    }));
    const std::size_t last = sweep_front(settings, 4).back();
    click_setting(window, "Front", "plot:$$" + std::to_string(last) + "/setting");
    EXPECT_EQ(window.app().config().tree, settings[last].tree);
    EXPECT_EQ(window.app().config().head, settings[last].head);
}

TEST(SweepPanel, HeatMapOfTwoParameters) {
    SweepWindow window;
    const SweepSettings settings = window.settings;
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("Sweep###sweep");
        ctx->ItemClick("Heat map");
        ctx->Yield(2);
        ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##plot").ID);
        ctx->ItemClick("##y");
        ctx->ItemClick("//$FOCUSED/nodes: 6 values");
        ctx->Yield(2);
    }));
    const SweepHeatMap map = sweep_heat_map(settings, "rank", "nodes", 1);
    click_setting(window, "Heat map", "heat:$$4/cell");
    EXPECT_EQ(window.app().config().tree, settings[*map.rows[4]].tree);
    EXPECT_EQ(window.app().config().head, settings[*map.rows[4]].head);
}

TEST(SweepPanel, SaysWhatToDoWithoutASweepOrRecording) {
    Harness window(choose_layout());
    auto sweep = std::make_shared<SweepReport>(*synthetic_sweep());
    sweep->recording.clear();
    window.draw_frames(3);
    window.controller.edit_status().sweeps = {sweep};
    window.draw_frames(3);
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef(ctx->WindowInfo("//Sweep###sweep/##details").ID);
        IM_CHECK(ctx->ItemExists("Use for the next run"));
        IM_CHECK(!ctx->ItemExists("Show its rounds"));
    }));
}

}  // namespace
}  // namespace draftscope::test
