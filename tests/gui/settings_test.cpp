#include "app/gui/shell/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/gui/harness.h"
#include "tests/support/scratch_folder.h"

// Tests of the stored settings and of the dialog on unsaved runs.
namespace draftscope::test {
namespace {

Settings parsed(const std::string& text, std::vector<std::string>* problems = nullptr) {
    std::vector<std::string> found;
    const Settings settings = parse_settings(text, found, "settings.json");
    if (problems != nullptr) *problems = found;
    return settings;
}

TEST(Settings, ReadsWhatItWrites) {
    Settings settings;
    settings.theme = ThemeId::light;
    settings.user_scale = 1.25f;
    settings.layout = "compare";
    settings.guide_seen = true;
    settings.open_panels = {{"log", false}, {"text", true}};
    settings.folder = "/captures";
    settings.recent_files = {"/captures/b.dscope", "/captures/a \"quoted\".dscope"};
    settings.session.emplace();
    settings.session->prompt = "two\nlines, and ü";
    settings.session->tree = "depth=6,topk=10,nodes=60";
    settings.session->temperature = 0.7;
    settings.session->seed = 18446744073709551615ull;
    settings.session->ignore_eos = true;
    std::vector<std::string> problems;
    EXPECT_EQ(parsed(to_json(settings), &problems), settings);
    EXPECT_EQ(problems, std::vector<std::string>());
}

TEST(Settings, IgnoresDamagedMembersAndReportsThem) {
    std::vector<std::string> problems;
    EXPECT_EQ(parsed("{\"theme\": \"li", &problems), Settings());
    EXPECT_EQ(problems, std::vector<std::string>{"settings.json: not JSON"});
    EXPECT_EQ(parsed("[1]", &problems), Settings());
    EXPECT_EQ(problems.size(), 1u);
    const Settings some = parsed(
        R"({"theme": "pink", "scale": 1e9, "guide_seen": true, "colour": 1, "recent_files": [1],
            "session": {"max_new": "many", "threads": -1, "batch": 2.5, "head": "microspec"}})",
        &problems);
    EXPECT_EQ(some.theme, ThemeId::dark);
    EXPECT_EQ(some.user_scale, 1.0f);
    EXPECT_TRUE(some.guide_seen);
    ASSERT_TRUE(some.session);
    EXPECT_EQ(some.session->head, "microspec");
    EXPECT_EQ(some.session->max_new, RunConfig().max_new);
    EXPECT_EQ(some.session->batch, 1);
    EXPECT_EQ(problems.size(), 7u);
}

TEST(Settings, RecentFilesAreTheLastTenWithoutRepeats) {
    Settings settings;
    for (int i = 0; i < 12; ++i) add_recent_file(settings, "/f" + std::to_string(i));
    add_recent_file(settings, "/f5");
    ASSERT_EQ(settings.recent_files.size(), 10u);
    EXPECT_EQ(settings.recent_files[0], "/f5");
    EXPECT_EQ(settings.recent_files[1], "/f11");
    EXPECT_EQ(std::count(settings.recent_files.begin(), settings.recent_files.end(), "/f5"), 1);
}

class StoredSettings : public ::testing::Test {
  protected:
    GuiOptions options() const {
        GuiOptions chosen;
        chosen.run_demo = false;
        chosen.settings_file = folder_.file("settings.json");
        return chosen;
    }
    void write(const std::string& text) const { std::ofstream(options().settings_file) << text; }

    testing::ScratchFolder folder_;
};

TEST_F(StoredSettings, AreRestoredAtTheNextStart) {
    const std::string capture = folder_.file("some.dscope");
    std::ofstream(capture) << "x";
    {
        Harness window(options());
        EXPECT_EQ(window.app().settings().theme, ThemeId::dark);
        window.app().perform(ActionId::theme_light);
        window.app().perform(ActionId::larger);
        window.app().perform(ActionId::guide);
        EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
            ctx->ItemClick("//##guide/Got it");
            ctx->ItemInputValue("//###session/**/##max_new", 17);
            ctx->ItemInputValue("//###session/**/##shadow", "full");
            ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_O);
            ctx->SetRef("Open capture");
            ctx->ItemInputValue("##name", capture.c_str());
            ctx->Yield(3);
        }));
    }
    Harness window(options());
    EXPECT_EQ(window.app().settings().theme, ThemeId::light);
    EXPECT_NEAR(window.app().settings().user_scale, 1.1, 1e-6);
    EXPECT_TRUE(window.app().settings().guide_seen);
    EXPECT_EQ(window.app().config().max_new, 17);
    EXPECT_EQ(window.app().config().shadow, "full");
    EXPECT_EQ(window.app().settings().folder, folder_.path());
    EXPECT_EQ(window.app().settings().recent_files, std::vector<std::string>{capture});
    EXPECT_TRUE(window.run([](ImGuiTestContext* ctx) {
        ctx->SetRef("##MainMenuBar");
        ctx->MenuClick("File/Open recent/some.dscope##0");
        ctx->Yield(3);
    }));
    EXPECT_EQ(window.app().snapshot().source, capture);
}

TEST_F(StoredSettings, UserSessionIsNotStartedAsDemo) {
    GuiOptions demo = options();
    demo.run_demo = true;
    {
        Harness window(demo);
        EXPECT_EQ(window.controller.runs.size(), 1u);
    }
    {
        Harness window(demo);
        EXPECT_EQ(window.controller.runs.size(), 1u) << "unchanged session: the demo runs again";
        window.app().config().head = "full";
    }
    Harness window(demo);
    EXPECT_TRUE(window.controller.runs.empty());
    EXPECT_EQ(window.app().config().head, "full");
}

TEST_F(StoredSettings, DamagedFileIsReplacedAtTheNextChange) {
    write("{ this is not JSON");
    {
        Harness window(options());
        EXPECT_EQ(window.app().settings().theme, ThemeId::dark);
        window.app().perform(ActionId::theme_light);
    }
    std::ifstream file(options().settings_file);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(parsed(text).theme, ThemeId::light);
    EXPECT_FALSE(std::filesystem::exists(options().settings_file + ".new"));
}

class Leaving : public ::testing::Test {
  protected:
    static GuiOptions quiet(bool demo = false) {
        GuiOptions options;
        options.run_demo = demo;
        return options;
    }
    /// Starts a run with rounds that is still running.
    static void run_some(Harness& window) {
        window.app().perform(ActionId::run_pause);
        window.draw_frames(2);
        window.controller.advance(5);
        window.draw_frames(2);
    }
};

TEST_F(Leaving, DemoNeedsNoConfirmation) {
    Harness window(quiet(true));
    window.controller.advance(5);
    window.draw_frames(2);
    EXPECT_EQ(window.app().unsaved_rounds(), 0u);
    window.app().perform(ActionId::quit);
    EXPECT_TRUE(window.app().wants_quit());
}

TEST_F(Leaving, UnsavedRunsNeedConfirmation) {
    Harness window(quiet());
    run_some(window);
    EXPECT_EQ(window.app().unsaved_rounds(), 5u);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_Q);
        ctx->Yield(2);
        IM_CHECK(!window.app().wants_quit());
        ctx->SetRef("Save recorded rounds?");
        ctx->ItemClick("Cancel");
        ctx->Yield(2);
        IM_CHECK(!window.app().wants_quit());
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_Q);
        ctx->Yield(2);
        ctx->ItemClick("Discard");
        ctx->Yield(2);
    }));
    EXPECT_TRUE(window.app().wants_quit());
}

TEST_F(Leaving, SavingThenQuits) {
    Harness window(quiet());
    run_some(window);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_Q);
        ctx->Yield(2);
        ctx->ItemClick("//Save recorded rounds?/Save...");
        ctx->Yield(2);
        ctx->ItemInputValue("//Save a copy/##name", DS_BINARY_DIR "/no_such_disk.bin");
        ctx->Yield(3);
        IM_CHECK(!window.app().wants_quit());  // the error is shown and the runs are kept
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_S);
        ctx->ItemInputValue("//Save a copy/##name", DS_BINARY_DIR "/kept.dscope");
        ctx->Yield(3);
        IM_CHECK(!window.app().wants_quit());  // saving a later copy does not quit
        IM_CHECK_EQ(window.app().unsaved_rounds(), 0u);
    }));
    EXPECT_EQ(window.app().notice(), "Saved " DS_BINARY_DIR "/kept.dscope");
    window.controller.advance(2);
    window.draw_frames(2);
    EXPECT_EQ(window.app().unsaved_rounds(), 2u) << "rounds after the copy";
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_Q);
        ctx->Yield(2);
        ctx->ItemClick("//Save recorded rounds?/Save...");
        ctx->Yield(2);
        ctx->ItemInputValue("//Save a copy/##name", DS_BINARY_DIR "/kept_at_last.dscope");
        ctx->Yield(3);
    }));
    EXPECT_TRUE(window.app().wants_quit());
}

TEST_F(Leaving, OpeningAFileNeedsConfirmation) {
    Harness window(quiet());
    run_some(window);
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_O);
        ctx->ItemInputValue("//Open capture/##name", DS_SOURCE_DIR "/README.md");
        ctx->Yield(3);
        IM_CHECK_EQ(window.controller.count<CmdOpenFile>(), 0);
        ctx->ItemClick("//Save recorded rounds?/Discard");
        ctx->Yield(2);
    }));
    EXPECT_EQ(window.controller.count<CmdOpenFile>(), 1);
}

TEST_F(Leaving, RunsRecordedToAFileNeedNoConfirmation) {
    Harness window(quiet());
    window.app().config().save = "run.dscope";
    run_some(window);
    EXPECT_EQ(window.app().unsaved_rounds(), 0u);
}

TEST_F(Leaving, FileDialogKeepsFocusAfterErrorAndConfirmsReplacing) {
    Harness window(quiet());
    EXPECT_TRUE(window.run([&](ImGuiTestContext* ctx) {
        ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_S);
        ctx->ItemInputValue("//Save a copy/##name", "/no/such/folder/a.dscope");
        ctx->Yield(3);
        IM_CHECK_EQ(window.controller.count<CmdSaveCopy>(), 0);
        ctx->KeyCharsReplace(DS_SOURCE_DIR "/README.md");  // without a click: the field still has the focus
        ctx->KeyPress(ImGuiKey_Enter);
        ctx->Yield(3);
        IM_CHECK_EQ(window.controller.count<CmdSaveCopy>(), 0);
        ctx->KeyPress(ImGuiKey_Enter);
        ctx->Yield(3);
        IM_CHECK_EQ(window.controller.count<CmdSaveCopy>(), 1);
    }));
}

}  // namespace
}  // namespace draftscope::test
