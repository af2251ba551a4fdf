#include "app/jobs/controller/controller.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>

#include "app/jobs/machine/capabilities.h"
#include "base/cpus.h"
#include "base/phase.h"
#include "capture/queries.h"
#include "storage/capture_file.h"
#include "storage/sweep_file.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

class ControllerTest : public ::testing::Test {
  protected:
    // Waits for the controller's wake calls; the timeout ends only a test that would fail anyway.
    bool until(const std::function<bool()>& holds) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        std::unique_lock lock(mutex_);
        while (!holds()) {
            if (std::chrono::steady_clock::now() > end) return false;
            woken_.wait_for(lock, std::chrono::milliseconds(5));
        }
        return true;
    }
    bool until_state(JobState state) {
        return until([&] { return controller_->status().state == state; });
    }
    bool until_ended(std::size_t runs) {
        return until([&] {
            const auto snapshot = controller_->snapshot();
            return controller_->status().state == JobState::idle && snapshot->runs.size() == runs &&
                   snapshot->runs.back().ended != RunEnd::live;
        });
    }
    std::size_t rounds() const { return controller_->snapshot()->rounds.size(); }

    TinyFiles files_;
    std::mutex mutex_;
    std::condition_variable woken_;
    std::unique_ptr<Controller> controller_ = make_controller([this] { woken_.notify_all(); });
};

TEST_F(ControllerTest, RunsToTheEndAndListsTheChoices) {
    controller_->submit({CmdStart{files_.config()}});
    ASSERT_TRUE(until_ended(1));
    const JobStatus status = controller_->status();
    EXPECT_EQ(status.error, "");
    EXPECT_EQ(status.config, files_.config());
    EXPECT_FALSE(status.capability_line.empty());
    // As in doctor and captures.
    for (const Capability& capability : describe_capabilities().capabilities) {
        const std::string brief = capability.name + ": " + capability.brief;
        EXPECT_EQ(status.capability_line.find(brief) != std::string::npos, capability.available) << brief;
        EXPECT_NE(status.capability_details.find(capability.state), std::string::npos) << capability.name;
    }
    ASSERT_GE(status.heads.size(), 2u);
    EXPECT_EQ(status.heads[0].spec, "full");
    EXPECT_GE(status.drafters.size(), 3u);
    EXPECT_EQ(controller_->snapshot()->runs[0].frontend, "gui");
    EXPECT_EQ(controller_->snapshot()->runs[0].ended, RunEnd::ok);
}

TEST_F(ControllerTest, ChecksFormsWhileARunIsHeld) {
    controller_->submit({CmdStart{files_.config(200)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    FormValues values{files_.config()};
    values.run.tree = "chian=3";
    controller_->submit({CmdCheck{{files_.config()}}, CmdCheck{values}});
    ASSERT_TRUE(until([&] {
        const auto checked = controller_->status().checked;
        return checked != nullptr && checked->values == values;
    }));
    const auto checked = controller_->status().checked;
    ASSERT_EQ(checked->run.size(), 1u);
    EXPECT_EQ(checked->run[0].nearest, "chain=3");
    EXPECT_EQ(controller_->status().state, JobState::held);
    controller_->submit({CmdStop{}, CmdStart{values.run}});
    ASSERT_TRUE(until([&] { return !controller_->status().error.empty(); }));
    EXPECT_EQ(controller_->status().error_field, "Tree");
    EXPECT_TRUE(controller_->status().error.starts_with("Tree: \"chian=3\"")) << controller_->status().error;
}

TEST_F(ControllerTest, PauseRightAfterStartStepsByRound) {
    controller_->submit({CmdStart{files_.config(200)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    EXPECT_EQ(controller_->status().hold_reason, "paused");
    EXPECT_EQ(rounds(), 0u);
    for (std::size_t want = 1; want <= 3; ++want) {
        controller_->submit({CmdStepRound{}});
        ASSERT_TRUE(until([&] { return rounds() == want && controller_->status().state == JobState::held; }));
    }
    controller_->submit({CmdResume{}});
    ASSERT_TRUE(until_ended(1));
    EXPECT_GT(rounds(), 3u);
}

TEST_F(ControllerTest, SteppingLevelsShowsTheRoundInFlight) {
    controller_->submit({CmdStart{files_.config(200)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    controller_->submit({CmdStepLevel{}});
    ASSERT_TRUE(until([&] {
        const auto live = controller_->snapshot()->live;
        return live != nullptr && live->active && live->partial.nodes.size() > 1;
    }));
    EXPECT_EQ(rounds(), 0u);
    controller_->submit({CmdStepPhase{}});
    ASSERT_TRUE(until_state(JobState::held));
    controller_->submit({CmdStop{}});
    ASSERT_TRUE(until_ended(1));
    EXPECT_EQ(controller_->snapshot()->live, nullptr);
}

/// The window and the command line give the same advice at each start.
TEST_F(ControllerTest, AForecastIsMadeOnce) {
    ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
    const testing::ScratchFolder cache;
    std::filesystem::create_directories(cache.file("draftscope"));
    std::filesystem::create_directory_symlink(std::filesystem::path(testing::demo_model_path()).parent_path(),
                                              cache.file("draftscope/models"));
    ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    RunConfig config;
    config.prompt = "hello";
    config.drafter = "eagle3";
    config.max_new = 8;
    const auto forecast = [&] {
        controller_ = make_controller([this] { woken_.notify_all(); });
        controller_->submit({CmdStart{config, true}});
        EXPECT_TRUE(until([&] { return !controller_->status().forecast.empty(); }));
        return controller_->status().forecast;
    };
    const std::string first = forecast(), kept = testing::read_text(cache.file("draftscope/forecasts.json"));
    EXPECT_FALSE(kept.empty());
    EXPECT_EQ(forecast(), first);
    EXPECT_EQ(testing::read_text(cache.file("draftscope/forecasts.json")), kept);
}

TEST_F(ControllerTest, BreakpointHoldsAfterARejection) {
    // A random drafter is nearly always wrong: the first draft is rejected in one of the first rounds.
    controller_->submit({CmdBreakpoints{1}, CmdStart{files_.config(500)}});
    ASSERT_TRUE(until([&] { return controller_->status().state == JobState::held && rounds() > 0; }));
    EXPECT_EQ(controller_->status().hold_reason, "breakpoint: rejection at depth <= 1");
    const auto snapshot = controller_->snapshot();
    EXPECT_EQ(snapshot->rounds.back().row.accepted, 0);
    ASSERT_TRUE(until([&] { return !controller_->snapshot()->notes.empty(); })) << "kept before it goes on";
    const NoteRow note = controller_->snapshot()->notes.front();
    EXPECT_EQ(note.round_id, snapshot->rounds.back().row.id);
    EXPECT_EQ(note.run_id, snapshot->runs.back().id);
    EXPECT_EQ(note.text, "breakpoint: rejection at depth <= 1");
    EXPECT_GE(note.time_ns, snapshot->rounds.back().row.end_ns) << "on the run's clock";
    EXPECT_LT(note.time_ns - snapshot->rounds.back().row.end_ns, ns_per_s);
    controller_->submit({CmdBreakpoints{}, CmdResume{}});
    ASSERT_TRUE(until_ended(1));
}

/// The note is on the round of the sequence that hit the breakpoint, not on the first one of the step.
TEST_F(ControllerTest, ABreakpointOfABatchIsNotedAtItsSequence) {
    RunConfig config = files_.config(24);
    config.prompts_file = files_.file("two.jsonl");
    testing::write_text(config.prompts_file,
                        R"({"id": "a", "prompt": "hello you and the"}
{"id": "b", "prompt": "the and you the hello"}
)");
    config.prompt.clear();
    config.batch = 2;
    controller_->submit({CmdStart{config}});
    ASSERT_TRUE(until_ended(1));
    const auto before = controller_->snapshot();
    ASSERT_EQ(before->prompts.size(), 2u);
    std::set<TokenId> of_first;
    for (const TokenRow& token : before->tokens)
        if (token.prompt_id == before->prompts[0]->id) of_first.insert(token.token_id);
    CmdBreakpoints only_second;
    for (const TokenRow& token : before->tokens)
        if (token.round_id != 0 && !of_first.contains(token.token_id)) only_second.token_id = token.token_id;
    ASSERT_TRUE(only_second.token_id) << "the texts have the same tokens";
    controller_->submit({only_second, CmdStart{config}});
    ASSERT_TRUE(until([&] { return !controller_->snapshot()->notes.empty(); }));
    const auto snapshot = controller_->snapshot();
    const NoteRow& note = snapshot->notes.front();
    EXPECT_EQ(note.text, fmt::format("breakpoint: token {} committed", *only_second.token_id));
    bool committed = false;
    for (const RoundEntry& round : snapshot->rounds) {
        if (round.row.id != note.round_id) continue;
        EXPECT_EQ(round.row.prompt_id, snapshot->prompts.back()->id);
        for (std::uint32_t i = 0; i < round.tokens.count; ++i)
            committed |= snapshot->tokens[round.tokens.first + i].token_id == *only_second.token_id;
    }
    EXPECT_TRUE(committed);
    controller_->submit({CmdBreakpoints{}, CmdStop{}});
}

/// A bookmark of a live run goes to the window and to the file that the run was recorded in; one of an opened
/// file goes to that file and is shown at once.
TEST_F(ControllerTest, BookmarksAreKeptLiveAndInFiles) {
    RunConfig config = files_.config(40);
    config.save = files_.file("run.dscope");
    controller_->submit({CmdStart{config}});
    ASSERT_TRUE(until_ended(1));
    const auto bookmark = [&](std::size_t round, const std::string& text) {
        const auto snapshot = controller_->snapshot();
        const RoundRow& row = snapshot->rounds[round].row;
        const std::size_t before = snapshot->notes.size();
        controller_->submit({CmdAddNote{{row.run_id, row.id, row.end_ns, text}}});
        EXPECT_TRUE(until([&] { return controller_->snapshot()->notes.size() == before + 1; }));
        EXPECT_EQ(controller_->snapshot()->notes.back().text, text);
    };
    const auto kept = [&] {
        const auto loaded = require(load_capture(config.save));
        return loaded->notes.empty() ? "" : loaded->notes.back().text;
    };
    bookmark(1, "bookmark: live");
    EXPECT_TRUE(until([&] { return kept() == "bookmark: live"; }));
    controller_->submit({CmdOpenFile{config.save}});
    ASSERT_TRUE(until([&] { return controller_->snapshot()->source == config.save; }));
    ASSERT_TRUE(until_state(JobState::idle));
    const std::size_t rounds_before = rounds();
    bookmark(2, "bookmark: opened");
    EXPECT_EQ(kept(), "bookmark: opened");
    EXPECT_EQ(rounds(), rounds_before);
    EXPECT_EQ(controller_->snapshot()->source, config.save);
    EXPECT_EQ(controller_->status().error, "");
    std::filesystem::remove(config.save);
    const RoundRow row = controller_->snapshot()->rounds[0].row;
    const std::size_t notes = controller_->snapshot()->notes.size();
    controller_->submit({CmdAddNote{{row.run_id, row.id, 0, "bookmark: lost"}}});
    ASSERT_TRUE(until([&] { return !controller_->status().error.empty(); }));
    EXPECT_EQ(controller_->snapshot()->notes.size(), notes) << "what is not kept is not shown";
}

TEST_F(ControllerTest, UsesAllCoresLikeTheCommandLine) {
    RunConfig config = files_.config(8);
    config.threads = 0;
    controller_->submit({CmdStart{config}});
    ASSERT_TRUE(until_ended(1));
    EXPECT_EQ(controller_->snapshot()->runs[0].threads, usable_cores());
}

/// No acceptance ships for the tiny model: a forecast that is not possible is left out.
TEST_F(ControllerTest, AForecastThatIsNotPossibleIsNoError) {
    controller_->submit({CmdStart{files_.config(8), true}});
    ASSERT_TRUE(until_ended(1));
    ASSERT_TRUE(until_state(JobState::idle));
    controller_->submit({CmdStart{files_.config(8)}});
    ASSERT_TRUE(until_ended(2));
    EXPECT_EQ(controller_->status().forecast, "");
    EXPECT_EQ(controller_->status().error, "");
}

TEST_F(ControllerTest, ShowsTheSweepsOfAFile) {
    SweptRow row;
    row.source = "tiny";
    row.drafter = "eagle2";
    row.head = "full";
    row.tree = "chain=2";
    row.tau = 1.5;
    row.units = "[[10, 15]]";
    const std::string file = files_.file("sweep.dscope");
    ASSERT_TRUE(write_swept(file, row.source, {row}, R"({"recording": "/recorded"})").ok());
    controller_->submit({CmdOpenFile{file}});
    ASSERT_TRUE(until([&] { return controller_->status().opened_file == file; }));
    const JobStatus status = controller_->status();
    EXPECT_EQ(status.error, "");
    ASSERT_EQ(status.sweeps.size(), 1u);
    EXPECT_EQ(status.sweeps[0]->recording, "/recorded");
    EXPECT_EQ(status.sweeps[0]->settings.size(), 1u);
    controller_->submit({CmdSweep{}});
    ASSERT_TRUE(until([&] { return !controller_->status().error.empty(); }));
    EXPECT_NE(controller_->status().error.find("names no recording"), std::string::npos);
    EXPECT_EQ(controller_->status().sweeps.size(), 1u) << "a failed sweep replaces none";
}

/// The same setting from the same text drafts the same tree, of a live run and of an opened file.
TEST_F(ControllerTest, WhatIfOfTheRunsOwnSettingIsItsTree) {
    RunConfig config = files_.config();
    config.tree = "depth=2,topk=2,nodes=6";
    controller_->submit({CmdStart{config}});
    ASSERT_TRUE(until_ended(1));
    const auto snapshot = controller_->snapshot();
    ASSERT_GT(snapshot->rounds.size(), 4u);
    const auto tokens = [](const RoundTree& tree) {
        std::vector<std::pair<int, TokenId>> out;
        for (const NodeRow& node : tree.nodes) out.emplace_back(node.parent, node.token_id);
        return out;
    };
    const auto draft_again = [&](std::size_t round, const std::string& tree,
                                 const std::vector<std::string>& heads = {}) {
        const RoundRow& row = snapshot->rounds[round].row;
        WhatIf wanted{row.run_id, row.prompt_id, row.context_length, {}, snapshot->run(row.run_id)->precision,
                      heads};
        wanted.setting.model = config.model;
        wanted.setting.drafter = config.drafter;
        wanted.setting.head = "full";
        wanted.setting.tree = tree;
        wanted.setting.threads = 1;
        const std::size_t before = controller_->status().what_ifs.size();
        controller_->submit({CmdWhatIf{wanted}});
        EXPECT_TRUE(until([&] {
            const JobStatus status = controller_->status();
            return status.what_ifs.size() >= before + std::max<std::size_t>(heads.size(), 1) ||
                   !status.error.empty();
        }));
        EXPECT_EQ(controller_->status().error, "");
        return controller_->status().what_ifs.back().snapshot;
    };
    for (const std::size_t round : {std::size_t{0}, std::size_t{3}}) {
        const auto again = draft_again(round, config.tree);
        ASSERT_EQ(again->rounds.size(), 1u);
        EXPECT_EQ(tokens(*again->tree(0)), tokens(*snapshot->tree(round))) << round;
        EXPECT_EQ(again->rounds[0].row.accepted, snapshot->rounds[round].row.accepted);
        EXPECT_EQ(again->rounds[0].row.context_length, snapshot->rounds[round].row.context_length);
        const std::vector<NodeRow> decoded = snapshot->tree(round)->nodes, redrafted = again->tree(0)->nodes;
        for (std::size_t n = 0; n < decoded.size(); ++n) {
            if (!decoded[n].accepted) continue;
            EXPECT_EQ(redrafted[n].target_draft_rank, decoded[n].target_draft_rank) << round << " " << n;
        }
        EXPECT_TRUE(redrafted[0].target_draft_rank);
        const StepPhases phases = step_phases(*again, 0);
        const auto took = [&](Phase phase) { return phases.ns[static_cast<std::size_t>(phase)]; };
        EXPECT_GT(took(Phase::backbone), 0);
        EXPECT_GT(took(Phase::head), 0);
        EXPECT_EQ(took(Phase::verify), 0) << "a replay drafts only";
        EXPECT_GE(phases.step_ns, took(Phase::backbone) + took(Phase::head));
    }
    EXPECT_EQ(draft_again(3, "chain=1")->rounds[0].row.tree_nodes, 2);
    EXPECT_EQ(draft_again(3, "chain=1", {"full", "microspec:wmax=64"})->runs[0].head, "microspec:wmax=64");
    EXPECT_EQ(controller_->status().what_ifs.size(), 5u);
    EXPECT_EQ(controller_->snapshot()->runs.size(), 1u) << "the shown capture stays as it is";
}

TEST_F(ControllerTest, StopCancelsTheRun) {
    controller_->submit({CmdStart{files_.config(1500)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    controller_->submit({CmdStop{}});
    ASSERT_TRUE(until_ended(1));
    EXPECT_EQ(controller_->snapshot()->runs[0].ended, RunEnd::cancelled);
    EXPECT_EQ(controller_->status().error, "");
}

TEST_F(ControllerTest, ANewStartReplacesTheRunningOne) {
    controller_->submit({CmdStart{files_.config(1500)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    RunConfig other = files_.config(8);
    other.drafter = "ngram";
    controller_->submit({CmdStart{other}});
    ASSERT_TRUE(until_ended(2));
    EXPECT_EQ(controller_->snapshot()->runs[0].ended, RunEnd::cancelled);
    EXPECT_EQ(controller_->snapshot()->runs[1].ended, RunEnd::ok);
    EXPECT_EQ(controller_->snapshot()->runs[1].drafter, "ngram");
}

TEST_F(ControllerTest, StopBeforeTheStartLeavesNoState) {
    controller_->submit({CmdStart{files_.config(1500)}, CmdStop{}});
    ASSERT_TRUE(until([&] {
        const auto snapshot = controller_->snapshot();
        return controller_->status().state == JobState::idle &&
               (snapshot->runs.empty() || snapshot->runs.back().ended == RunEnd::cancelled);
    }));
}

TEST_F(ControllerTest, CopyOfALiveRunEqualsTheCapture) {
    controller_->submit({CmdStart{files_.config(200)}});
    ASSERT_TRUE(until_ended(1));
    const auto live = controller_->snapshot();
    const std::string path = files_.file("copy.dscope");
    controller_->submit({CmdSaveCopy{path}});
    ASSERT_TRUE(until([&] { return std::filesystem::exists(path); }));  // appears when complete
    controller_->submit({CmdOpenFile{path}});
    ASSERT_TRUE(until([&] {
        return controller_->status().state == JobState::idle && controller_->snapshot()->source == path;
    }));
    const auto opened = controller_->snapshot();
    EXPECT_EQ(controller_->status().opened_file, path);
    ASSERT_EQ(opened->runs.size(), 1u);
    EXPECT_EQ(opened->runs[0].ended, RunEnd::ok);
    EXPECT_EQ(opened->rounds.size(), live->rounds.size());
    EXPECT_EQ(opened->nodes.size(), live->nodes.size());
    EXPECT_EQ(opened->spans.size(), live->spans.size());
    EXPECT_EQ(opened->prompts[0]->output, live->prompts[0]->output);

    // A capture open to compare: it can be saved, and the next file closes it.
    const std::string other = files_.file("other.dscope"), saved = files_.file("saved.dscope");
    std::filesystem::copy_file(path, other);
    controller_->submit({CmdOpenOther{other}});
    ASSERT_TRUE(until([&] { return controller_->status().others.size() == 1; }));
    controller_->submit({CmdSaveCopy{saved, other}});
    ASSERT_TRUE(until([&] { return controller_->status().saved_files == 2; }));
    controller_->submit({CmdOpenFile{saved}});
    ASSERT_TRUE(until([&] { return controller_->snapshot()->source == saved; }));
    EXPECT_TRUE(controller_->status().others.empty());
    EXPECT_EQ(controller_->snapshot()->rounds.size(), live->rounds.size());

    controller_->submit({CmdStart{files_.config(8)}});
    ASSERT_TRUE(until([&] {
        return controller_->status().state == JobState::idle && controller_->snapshot()->source.empty();
    }));
    EXPECT_EQ(controller_->snapshot()->runs.size(), 1u);
    EXPECT_EQ(controller_->status().opened_file, "");
}

TEST_F(ControllerTest, FollowsAFileThatIsBeingWritten) {
    const std::string path = files_.file("live.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    RunRow run;
    run.id = 1;
    writer->push(RunStarted{run, nullptr, {1, 5, 6, std::nullopt}});
    const auto push_step = [&](RowId id) {
        StepRecord record;
        record.step = {id, 1, static_cast<int>(id), id * 1000, id * 1000 + 900, 0, Excluded::no};
        writer->push(record);
        ASSERT_TRUE(writer->flush().ok());
    };
    push_step(1);
    controller_->submit({CmdOpenFile{path}});
    const auto steps = [&] { return controller_->snapshot()->steps.size(); };
    ASSERT_TRUE(until([&] { return steps() == 1 && controller_->status().state == JobState::idle; }));
    EXPECT_NE(controller_->status().activity.find("following"), std::string::npos);
    push_step(2);
    push_step(3);
    ASSERT_TRUE(until([&] { return steps() == 3; }));
    writer->push(RunEnded{1, RunEnd::ok, 4000, {1, 4005, 4006, std::nullopt}});
    ASSERT_TRUE(writer->close().ok());
    ASSERT_TRUE(until([&] { return controller_->snapshot()->runs[0].ended == RunEnd::ok; }));
    ASSERT_TRUE(until([&] { return controller_->status().activity.empty(); }));
    EXPECT_EQ(controller_->status().error, "");
}

TEST_F(ControllerTest, OpensTimelinesAsOverlayOrByThemselves) {
    const std::string trace = std::string(DS_SOURCE_DIR) + "/tests/golden/traces/torch_profiler.json.gz";
    controller_->submit({CmdOpenOverlay{trace}});
    ASSERT_TRUE(until([&] { return controller_->status().overlay != nullptr; }));
    EXPECT_EQ(controller_->status().overlay->spans.size(), 12u);
    EXPECT_TRUE(controller_->snapshot()->runs.empty());
    controller_->submit({CmdOpenOverlay{""}});
    ASSERT_TRUE(until([&] { return controller_->status().overlay == nullptr; }));
    controller_->submit({CmdOpenOverlay{"/nonexistent.json"}});
    ASSERT_TRUE(until([&] { return !controller_->status().error.empty(); }));
    EXPECT_NE(controller_->status().error.find("/nonexistent.json"), std::string::npos);
    controller_->submit({CmdOpenFile{trace}});
    ASSERT_TRUE(until([&] { return controller_->snapshot()->source == trace; }));
    EXPECT_EQ(controller_->snapshot()->runs[0].frontend, "import");
}

TEST_F(ControllerTest, StatusShowsErrorsInOneLine) {
    controller_->submit({CmdOpenFile{files_.model()}});
    ASSERT_TRUE(until([&] { return !controller_->status().error.empty(); }));
    EXPECT_NE(controller_->status().error.find("not a Draftscope capture"), std::string::npos);
    RunConfig wrong = files_.config();
    wrong.head = "nope";
    controller_->submit({CmdStart{wrong}});
    ASSERT_TRUE(until([&] { return controller_->status().error.find("nope") != std::string::npos; }));
    EXPECT_EQ(controller_->status().error.find('\n'), std::string::npos);
    ASSERT_TRUE(until_state(JobState::idle));
}

TEST_F(ControllerTest, CanBeDestroyedWhileTheEngineIsHeld) {
    controller_->submit({CmdStart{files_.config(1500)}, CmdPause{}});
    ASSERT_TRUE(until_state(JobState::held));
    controller_.reset();
}

}  // namespace
}  // namespace draftscope
