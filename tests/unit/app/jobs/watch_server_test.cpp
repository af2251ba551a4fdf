#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "app/jobs/controller/controller.h"
#include "tests/support/stand_in_llama.h"
#include "tests/unit/app/jobs/tiny_files.h"

/// The window watches a server of another engine.
namespace draftscope {
namespace {

using testing::llama_stream;
using testing::StandInServer;

class WatchedServer : public ::testing::Test {
  protected:
    /// The timeout ends only a test that would fail anyway.
    static bool until(const std::function<bool()>& holds) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!holds()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return true;
    }
    bool until_ended(std::size_t runs) const {
        return until([&] {
            const auto snapshot = controller_->snapshot();
            return controller_->status().state == JobState::idle && snapshot->runs.size() == runs &&
                   snapshot->runs.back().ended != RunEnd::live;
        });
    }
    CmdWatchServer watch(const StandInServer& server) const {
        RunConfig prompts;
        prompts.prompt = "Say it";
        return {server.url(), prompts};
    }
    std::size_t rounds() const { return controller_->snapshot()->rounds.size(); }

    testing::TinyFiles files_;
    std::unique_ptr<Controller> controller_ = make_controller([] {});
};

TEST_F(WatchedServer, RoundsAppearWhileTheServerDecodesUntilItIsStopped) {
    auto half = llama_stream();
    half.resize(5);
    StandInServer server([&](const auto& request) {
        return testing::play_llama_server(request, {200, half, true});
    });
    controller_->submit({watch(server)});
    ASSERT_TRUE(until([&] { return rounds() == 1; }));
    EXPECT_EQ(controller_->status().state, JobState::running);
    EXPECT_EQ(controller_->status().activity, std::string(watching_activity) + "prompt 1");
    EXPECT_EQ(controller_->snapshot()->runs[0].ended, RunEnd::live);
    controller_->submit({CmdStop{}});
    ASSERT_TRUE(until_ended(1));
    EXPECT_EQ(controller_->status().error, "");
    EXPECT_EQ(rounds(), 2u);  // the stream's end also ends the round that it was in
}

TEST_F(WatchedServer, KeepsWhatCameBeforeTheServerWentAway) {
    int prompts = 0;
    StandInServer server([&](const auto& request) {
        const bool prompt = request.body.find("\"stream\":true") != std::string::npos;
        const bool gone = prompt && ++prompts == 2;
        return testing::play_llama_server(request, gone ? StandInServer::Answer{503, {"Loading model"}}
                                                        : StandInServer::Answer{200, llama_stream()});
    });
    CmdWatchServer command = watch(server);
    command.prompts.prompts_file = files_.file("prompts.jsonl");
    testing::write_text(command.prompts.prompts_file, "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n");
    controller_->submit({command});
    ASSERT_TRUE(until_ended(1));
    EXPECT_EQ(rounds(), 3u);
    EXPECT_NE(controller_->status().error.find("503: Loading model"), std::string::npos)
        << controller_->status().error;
}

TEST_F(WatchedServer, BecomesAFurtherRunOfTheWindow) {
    StandInServer server([](const auto& request) {
        return testing::play_llama_server(request, {200, llama_stream()});
    });
    controller_->submit({CmdStart{files_.config(8)}});
    ASSERT_TRUE(until_ended(1));
    const std::size_t own = rounds();
    CmdWatchServer command = watch(server);
    command.prompts.model = files_.model();
    controller_->submit({command});
    ASSERT_TRUE(until_ended(2));
    EXPECT_EQ(rounds(), own + 3);
    controller_->submit({CmdStart{files_.config(8)}});
    ASSERT_TRUE(until_ended(3));
    const auto snapshot = controller_->snapshot();
    EXPECT_EQ(snapshot->runs[1].frontend, "import");
    EXPECT_EQ(snapshot->runs[1].drafter, "draft-eagle3");
    ASSERT_NE(snapshot->vocab(snapshot->runs[1].vocab_id), nullptr);
    EXPECT_NE(snapshot->runs[1].vocab_id, snapshot->runs[0].vocab_id);
    std::set<RowId> ids;
    for (const RoundEntry& round : snapshot->rounds) EXPECT_TRUE(ids.insert(round.row.id).second);
    for (std::size_t i = own; i < own + 3; ++i) EXPECT_EQ(snapshot->rounds[i].row.run_id, 2);
    EXPECT_EQ(snapshot->rounds[own].tokens.count, 3u);
    EXPECT_EQ(snapshot->prompt(snapshot->rounds[own].row.prompt_id)->run_id, 2);
}

TEST_F(WatchedServer, SaysWhyNothingCame) {
    const auto error = [&](const CmdWatchServer& command) {
        controller_->submit({command});
        EXPECT_TRUE(until([&] {
            const JobStatus status = controller_->status();
            return status.state == JobState::idle && !status.error.empty();
        }));
        return controller_->status().error;
    };
    StandInServer server([](const auto&) { return StandInServer::Answer{404, {}}; });
    EXPECT_NE(error(watch(server)).find("llama.cpp, sglang and vllm"), std::string::npos);
    CmdWatchServer command = watch(server);
    command.prompts.prompts_file = files_.file("absent.jsonl");
    EXPECT_NE(error(command).find("absent.jsonl"), std::string::npos);
    EXPECT_TRUE(controller_->snapshot()->runs.empty());
}

}  // namespace
}  // namespace draftscope
