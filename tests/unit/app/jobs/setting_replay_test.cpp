
#include <gtest/gtest.h>

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/run/run_job.h"
#include "capture/collected_capture.h"
#include "capture/queries.h"
#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

class SettingReplayTest : public ::testing::Test {
  protected:
    void SetUp() override {
        testing::write_text(files_.file("prompts.jsonl"),
                            "{\"id\": 0, \"prompt\": \"hello you\"}\n"
                            "{\"id\": 1, \"category\": \"chat\", \"turns\": [\"the end\", \"and then\"]}\n");
        RecordConfig record;
        record.run = files_.config();
        record.run.prompt.clear();
        record.run.prompts_file = files_.file("prompts.jsonl");
        record.out = files_.file("recorded");
        record.aux = "none";
        record.times = false;
        ASSERT_TRUE(run_record(record, {}).ok());
    }
    SettingReplay wanted() const {
        SettingReplay out;
        out.recording = files_.file("recorded");
        out.model = files_.model();
        out.drafter = files_.config().drafter;
        out.head = "full";
        out.tree = "depth=1,topk=2,nodes=5";
        out.conversation = 1;
        out.conversations = 2;
        out.threads = 1;
        return out;
    }
    testing::TinyFiles files_;
};

/// A recording stands for the prompts that it was made of, each turn with the history that was recorded.
TEST_F(SettingReplayTest, RunsTakeItsPrompts) {
    const auto outputs = [&](RunConfig config) {
        Recorder recorder;
        DebugGate gate;
        EngineHost host;
        config.prompt.clear();
        const auto done = host.run(config, recorder, gate, {});
        std::vector<std::pair<std::string, std::vector<TokenId>>> out;
        if (!done.ok()) return std::pair(done.error().message, out);
        for (const PromptReport& prompt : done->prompts) out.emplace_back(prompt.id, prompt.outcome.tokens);
        return std::pair(std::string(), out);
    };
    RunConfig config = files_.config();
    config.prompts_file = files_.file("prompts.jsonl");
    const auto of_file = outputs(config);
    config.prompts_file = wanted().recording;
    const auto of_recording = outputs(config);
    EXPECT_EQ(of_recording.first, "");
    EXPECT_EQ(of_recording.second, of_file.second);
    EXPECT_EQ(of_recording.second.size(), 3u);
    config.limit = 1;
    EXPECT_EQ(outputs(config).second.size(), 1u);
    config.raw = true;
    EXPECT_NE(outputs(config).first.find("leave out --raw"), std::string::npos) << outputs(config).first;
    config.raw = false;
    ASSERT_TRUE(testing::write_tiny_gguf(files_.file("other.gguf"), 3, {.layers = 1, .context = 2048}).ok());
    config.model = files_.file("other.gguf");
    config.drafter = "ngram";
    EXPECT_NE(outputs(config).first.find("was recorded from"), std::string::npos) << outputs(config).first;
}

TEST_F(SettingReplayTest, MakesARunOfTheReplayedRounds) {
    CollectedCapture sink;
    RowIds ids;
    ids.run = 4;
    ASSERT_TRUE(is_ok(replay_setting(wanted(), ids, sink, {})));
    const Snapshot shown = sink.capture.snapshot(1);
    ASSERT_EQ(shown.runs.size(), 1u);
    EXPECT_EQ(shown.runs[0].id, 5);
    EXPECT_EQ(shown.runs[0].acceptance, "replayed");
    EXPECT_EQ(losslessness(shown.runs[0]), "exact") << "the text is the target's";
    EXPECT_EQ(shown.runs[0].ended, RunEnd::ok);
    ASSERT_EQ(shown.prompts.size(), 2u) << "both turns of the conversation";

    ReplayConfig config;
    config.recording = wanted().recording;
    config.model = wanted().model;
    config.drafter = wanted().drafter;
    config.tree = wanted().tree;
    config.threads = 1;
    config.shard = {2, 2};
    const auto replayed = run_replay(config, {});
    ASSERT_TRUE(replayed.ok()) << replayed.error().message;
    std::size_t at = 0;
    for (std::size_t p = 0; p < 2; ++p) {
        const PromptRow& prompt = *shown.prompts[p];
        EXPECT_EQ(prompt.category, "chat");
        EXPECT_EQ(prompt.turn, static_cast<int>(p));
        EXPECT_FALSE(prompt.output.empty());
        int committed = 1;
        for (const HeadRound& round : replayed->result.rounds[0][p]) {
            ASSERT_LT(at, shown.rounds.size());
            const RoundRow& row = shown.rounds[at].row;
            EXPECT_EQ(row.prompt_id, prompt.id);
            EXPECT_EQ(row.context_length, round.prefix);
            EXPECT_EQ(row.committed, round.committed);
            EXPECT_EQ(row.accepted, round.accepted);
            EXPECT_EQ(row.tree_nodes, round.tree_nodes);
            committed += round.committed;
            ++at;
        }
        EXPECT_EQ(prompt.generated_tokens, committed);
    }
    EXPECT_EQ(at, shown.rounds.size());
}

TEST_F(SettingReplayTest, ReportsWhatItCannotReplay) {
    CollectedCapture sink;
    RowIds ids;
    SettingReplay other = wanted();
    other.recording = files_.file("missing");
    const Status missing = replay_setting(other, ids, sink, {});
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("missing"), std::string::npos);
    other = wanted();
    other.head = "nope";
    EXPECT_FALSE(replay_setting(other, ids, sink, {}).ok());
    JobHooks stopped;
    stopped.cancelled = [] { return true; };
    const Status cancelled = replay_setting(wanted(), ids, sink, stopped);
    ASSERT_FALSE(cancelled.ok());
    EXPECT_EQ(cancelled.error().kind, ErrorKind::cancelled);
    EXPECT_TRUE(sink.capture.snapshot(1).runs.empty()) << "nothing is shown of a replay that failed";
}

}  // namespace
}  // namespace draftscope
