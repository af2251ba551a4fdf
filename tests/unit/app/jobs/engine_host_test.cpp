#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/run_job.h"
#include "base/phase_names.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "profiler/nvtx/nvtx_mirror.h"
#include "stats/speedup.h"
#include "storage/capture_file.h"
#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

class EngineHostTest : public ::testing::Test {
  protected:
    RunReport run(const RunConfig& config, const RunHooks& hooks = {}) {
        auto done = host_.run(config, recorder_, gate_, hooks);
        if (!done.ok()) {
            ADD_FAILURE() << done.error().message;
            return {};
        }
        recorder_.flush();
        return std::move(*done);
    }
    /// Returns a config whose prompt file has `count` prompts.
    RunConfig config_of_prompts(int count) const {
        RunConfig config = files_.config();
        config.prompts_file = files_.file("some.jsonl");
        std::ofstream prompts(config.prompts_file);
        for (int i = 0; i < count; ++i) prompts << "{\"prompt\": \"hello " << i << "\"}\n";
        return config;
    }

    TinyFiles files_;
    Recorder recorder_;
    DebugGate gate_;
    EngineHost host_;
};

TEST_F(EngineHostTest, RecordsTheRunItReports) {
    std::string streamed;
    RunHooks hooks;
    hooks.on_text = [&](std::string_view piece) { streamed += piece; };
    const RunReport report = run(files_.config(), hooks);
    const auto snapshot = recorder_.snapshot();
    ASSERT_EQ(snapshot->runs.size(), 1u);
    const RunRow& row = snapshot->runs[0];
    EXPECT_EQ(row.id, report.run_id);
    EXPECT_EQ(row.ended, RunEnd::ok);
    EXPECT_EQ(row.drafter, "eagle2");
    EXPECT_EQ(row.head, "full");
    EXPECT_EQ(row.tree, "depth=3,topk=4,nodes=12");
    EXPECT_EQ(row.precision, "f32");
    EXPECT_EQ(row.threads, 1);
    ASSERT_NE(snapshot->vocab(row.vocab_id), nullptr);
    EXPECT_EQ(snapshot->vocab(row.vocab_id)->rows[4].text, "\\x01");

    ASSERT_EQ(report.prompts.size(), 1u);
    const PromptOutcome& outcome = report.prompts[0].outcome;
    EXPECT_EQ(outcome.tokens.size(), 24u);
    EXPECT_EQ(streamed, outcome.text + "\n");
    const RunTotals totals = run_totals(*snapshot, row.id);
    EXPECT_EQ(totals.rounds, outcome.rounds);
    EXPECT_EQ(totals.committed, outcome.committed);
    EXPECT_EQ(totals.generated, 24);
    EXPECT_EQ(snapshot->prompts[0]->output, outcome.text);
    for (std::size_t i = 0; i < snapshot->rounds.size(); ++i)
        EXPECT_EQ(snapshot->rounds[i].nodes.count,
                  static_cast<std::uint32_t>(snapshot->rounds[i].row.tree_nodes));
}

TEST_F(EngineHostTest, CountsTheRoundsBeyondTheDraftersContext) {
    RunConfig config = files_.config();
    EXPECT_EQ(run(config).notes, Notes());
    const std::string file = files_.file("eagle2/config.json");
    auto json = nlohmann::json::parse(std::ifstream(file));
    json["max_position_embeddings"] = 20;
    std::ofstream(file) << json;
    config.drafter += ",embeddings=target";  // loads it again
    const RunReport report = run(config);
    const auto snapshot = recorder_.snapshot();
    int rounds = 0, beyond = 0;
    for (std::size_t i = 0; i < snapshot->rounds.size(); ++i) {
        const RoundRow& row = snapshot->rounds[i].row;
        rounds += row.run_id == report.run_id ? 1 : 0;
        beyond += row.run_id == report.run_id && row.context_length > 20 ? 1 : 0;
    }
    ASSERT_GT(beyond, 0);
    const std::string note =
        fmt::format("{} of {} rounds drafted beyond the context of 20 positions", beyond, rounds);
    ASSERT_EQ(report.notes.size(), 1u);
    EXPECT_EQ(report.notes[0].substr(0, note.size()), note);
    ASSERT_EQ(snapshot->notes.size(), 1u);
    EXPECT_EQ(snapshot->notes[0].text, report.notes[0]);
    EXPECT_EQ(snapshot->notes[0].round_id, 0);
    // The capture keeps the options with the drafter.
    EXPECT_NE(snapshot->runs.back().config_json.find("eagle2,embeddings=target"), std::string::npos);
}

TEST_F(EngineHostTest, RunsShareCaptureAndLoadedModel) {
    run(files_.config());
    int loads = 0;
    RunHooks hooks;
    hooks.on_progress = [&](double, const std::string& what) {
        loads +=
            what.find("weights") != std::string::npos || what.find("loading") != std::string::npos ? 1 : 0;
    };
    RunConfig second = files_.config();
    second.tree = "chain=4";
    const RunReport report = run(second, hooks);
    EXPECT_EQ(report.run_id, 2);
    EXPECT_EQ(loads, 0);
    const auto snapshot = recorder_.snapshot();
    EXPECT_EQ(snapshot->runs.size(), 2u);
    EXPECT_EQ(snapshot->vocabs.size(), 1u);
    EXPECT_EQ(snapshot->prompts[0]->output, snapshot->prompts[1]->output);  // lossless
    RunConfig third = files_.config();
    third.drafter = "ngram";
    EXPECT_EQ(run(third).run_id, 3);
    EXPECT_EQ(recorder_.snapshot()->runs[2].head, "");
}

TEST_F(EngineHostTest, StoresTheBaselineAsARun) {
    RunConfig config = files_.config();
    config.prompts_file = files_.file("some.jsonl");
    std::ofstream(config.prompts_file) << "{\"turns\": [\"hello\", \"and then\"]}\n{\"prompt\": \"next\"}\n";
    config.baseline = 1;
    config.save = files_.file("with_baseline.dscope");
    const RunReport report = run(config);
    const auto snapshot = recorder_.snapshot();
    ASSERT_EQ(snapshot->runs.size(), 2u);
    EXPECT_EQ(report.run_id, 1);
    EXPECT_EQ(report.prompts.size(), 3u);
    const RunRow &own = snapshot->runs[0], &plain = snapshot->runs[1];
    EXPECT_TRUE(is_baseline(plain));
    EXPECT_FALSE(is_baseline(own));
    EXPECT_EQ(plain.ended, RunEnd::ok);
    EXPECT_EQ(plain.head, "");
    EXPECT_EQ(plain.tree, "none");
    EXPECT_EQ(plain_setting(plain), plain_setting(own));
    EXPECT_EQ(run_totals(*snapshot, 2).tau, 1);
    // All turns of the first conversation and no others.
    ASSERT_EQ(snapshot->prompts.size(), 5u);
    EXPECT_EQ(snapshot->prompts[4]->turn, 1);
    EXPECT_EQ(snapshot->prompts[3]->output, snapshot->prompts[0]->output);
    const auto speed = compute_speedup(*snapshot, 1);
    ASSERT_TRUE(speed);
    EXPECT_EQ(speed->prompts, 2u);
    EXPECT_EQ(speed->plain_runs, std::vector<RowId>{2});
    // The file contains the same.
    const auto stored = require(load_capture(config.save));
    EXPECT_DOUBLE_EQ(compute_speedup(*stored, 1)->ratio.value, speed->ratio.value);
    config.save.clear();
    config.drafter = "none";
    EXPECT_EQ(run(config).run_id, 3) << "without a drafter there is nothing to hold a baseline against";
}

/// Returns "run.conversation" of each prompt in the order in which they were decoded.
std::vector<std::string> decoding_order(const Snapshot& snapshot) {
    std::map<TimeNs, std::string> order;
    for (const RoundEntry& entry : snapshot.rounds) {
        const PromptRow& prompt = *snapshot.prompt(entry.row.prompt_id);
        order[snapshot.run(prompt.run_id)->started_monotonic + entry.row.start_ns] =
            fmt::format("{}.{}", prompt.run_id, prompt.ordinal);
    }
    std::vector<std::string> names;
    for (const auto& [time, name] : order)
        if (names.empty() || names.back() != name) names.push_back(name);
    return names;
}

TEST_F(EngineHostTest, TheBaselineTakesTurns) {
    RunConfig config = config_of_prompts(4);
    config.baseline = 3;
    run(config);
    const auto snapshot = recorder_.snapshot();
    EXPECT_EQ(decoding_order(*snapshot),
              (std::vector<std::string>{"1.0", "2.0", "2.1", "1.1", "1.2", "2.2", "1.3"}));
    // A capture has run after run, with steps and ids in ascending order.
    for (std::size_t i = 1; i < snapshot->steps.size(); ++i) {
        EXPECT_EQ(snapshot->steps[i].row.id, snapshot->steps[i - 1].row.id + 1);
        EXPECT_LE(snapshot->steps[i - 1].row.run_id, snapshot->steps[i].row.run_id);
    }
    // Only the run's first steps are warm-up, not those of each turn.
    EXPECT_EQ(run_totals(*snapshot, 1).excluded_warmup, 2);
    EXPECT_EQ(compute_speedup(*snapshot, 1)->conversations, 3u);
}

TEST_F(EngineHostTest, AShortBaselineNeedsNoOption) {
    RunConfig config = config_of_prompts(5);
    config.baseline = short_baseline;
    RowId id = run(config).run_id;
    EXPECT_EQ(compute_speedup(*recorder_.snapshot(), id)->conversations, 1u);
    config.batch = 2;
    id = run(config).run_id;
    EXPECT_EQ(compute_speedup(*recorder_.snapshot(), id)->conversations, 2u);
    // Shards would differ in what they hold.
    config.shard = {1, 2};
    const std::size_t runs = recorder_.snapshot()->runs.size();
    run(config);
    EXPECT_EQ(recorder_.snapshot()->runs.size(), runs + 1);
}

TEST_F(EngineHostTest, ResumeKeepsTheChosenTree) {
    RunConfig config = files_.config();
    config.save = files_.file("chosen.dscope");
    config.tree = "chain=2";
    run(config);
    config.resume = true;
    config.tree = "auto";
    config.head = "auto";
    const RunReport again = run(config);
    EXPECT_EQ(again.resumed_conversations, 1u);
    EXPECT_EQ(recorder_.snapshot()->run(again.run_id)->tree, "chain=2");
    EXPECT_EQ(recorder_.snapshot()->run(again.run_id)->head, "full");
}

TEST_F(EngineHostTest, CancellationKeepsRecordedRows) {
    RunConfig config = files_.config(1500);
    config.save = files_.file("cut.dscope");
    RunHooks hooks;
    int pieces = 0;
    hooks.on_text = [&](std::string_view) {
        if (++pieces == 20) gate_.cancel();
    };
    const RunReport report = run(config, hooks);
    EXPECT_TRUE(report.cancelled);
    ASSERT_EQ(report.prompts.size(), 1u);
    EXPECT_EQ(report.prompts[0].outcome.finish, Finish::cancelled);
    const auto loaded = require(load_capture(config.save));
    EXPECT_EQ(loaded->runs[0].ended, RunEnd::cancelled);
    EXPECT_EQ(loaded->rounds.size(), recorder_.snapshot()->rounds.size());
    EXPECT_GT(loaded->rounds.size(), 0u);
}

TEST_F(EngineHostTest, RejectsPromptsThatAreAllTooLongBeforeDecoding) {
    RunConfig config = files_.config();
    std::string longer;
    for (int i = 0; i < 3000; ++i) longer += "xy ";
    config.prompts_file = files_.file("prompts.jsonl");
    std::ofstream(config.prompts_file) << "{\"id\": \"big\", \"prompt\": \"" << longer << "\"}\n";
    const auto done = host_.run(config, recorder_, gate_, {});
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
    EXPECT_NE(done.error().message.find("big"), std::string::npos);
    recorder_.flush();
    EXPECT_TRUE(recorder_.snapshot()->runs.empty());
}

TEST_F(EngineHostTest, TooLongTurnEndsOnlyItsConversation) {
    RunConfig config = files_.config();
    std::string longer;
    for (int i = 0; i < 3000; ++i) longer += "xy ";
    config.prompts_file = files_.file("turns.jsonl");
    std::ofstream(config.prompts_file)
        << "{\"turns\": [\"hello\", \"" << longer << "\"]}\n{\"prompt\": \"next\"}\n";
    const RunReport report = run(config);
    ASSERT_EQ(report.prompts.size(), 2u);
    EXPECT_EQ(report.prompts[1].id, "1");
    EXPECT_EQ(recorder_.snapshot()->prompts[0]->suite, "turns");
}

TEST_F(EngineHostTest, BatchDecodesTheSameConversations) {
    RunConfig config = files_.config();
    config.prompts_file = files_.file("turns.jsonl");
    std::string longer;
    for (int i = 0; i < 3000; ++i) longer += "xy ";
    std::ofstream(config.prompts_file)
        << "{\"turns\": [\"hello\", \"and then\", \"at last\"]}\n{\"prompt\": \"next\"}\n"
        << "{\"turns\": [\"one\", \"" << longer << "\"]}\n{\"turns\": [\"a\", \"b\"]}\n{\"prompt\": \"z\"}\n";
    config.temperature = 1.0;
    config.max_new = 12;
    config.baseline = 2;
    const RunReport alone = run(config);
    config.batch = 3;
    std::string streamed;
    RunHooks hooks;
    hooks.on_text = [&](std::string_view piece) { streamed += piece; };
    const RunReport together = run(config, hooks);
    ASSERT_EQ(alone.prompts.size(), 8u);
    ASSERT_EQ(together.prompts.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(together.prompts[i].ordinal, alone.prompts[i].ordinal);
        EXPECT_EQ(together.prompts[i].id, alone.prompts[i].id);
        EXPECT_EQ(together.prompts[i].outcome.tokens, alone.prompts[i].outcome.tokens) << i;
        // Complete answers, in the order in which they end.
        EXPECT_NE(streamed.find(together.prompts[i].outcome.text + "\n"), std::string::npos);
    }
    // The rejected turn leaves a gap, so later ordinals do not depend on it.
    EXPECT_EQ(alone.prompts[5].ordinal, 6);
    const auto snapshot = recorder_.snapshot();
    ASSERT_EQ(snapshot->runs.size(), 4u);  // each before its baseline
    EXPECT_EQ(snapshot->runs[1].batch, 1);
    EXPECT_EQ(snapshot->runs[2].batch, 3);
    EXPECT_EQ(snapshot->runs[3].batch, 3);
    std::size_t max_rounds = 0;
    for (std::size_t i = 0; i < snapshot->steps.size(); ++i)
        max_rounds = std::max<std::size_t>(max_rounds, snapshot->steps[i].rounds.count);
    EXPECT_EQ(max_rounds, 3u);
    EXPECT_TRUE(compute_speedup(*snapshot, together.run_id));
}

#ifdef DS_HAVE_NVTX
TEST_F(EngineHostTest, NvtxRangesMatchTheSpans) {
    nvtx_capture_start();
    run(files_.config());
    nvtx_capture_stop();
    std::map<std::string, int> seen, recorded;
    for (const NvtxRange& range : nvtx_capture_take())
        if (range.domain == "draftscope") ++seen[range.name];
    const auto snapshot = recorder_.snapshot();
    for (std::size_t i = 0; i < snapshot->spans.size(); ++i)
        ++recorded[std::string(phase_rows[snapshot->spans[i].phase_id].name)];
    EXPECT_EQ(seen, recorded);
    for (const char* phase : {"prefill", "backbone", "head", "topk", "verify", "accept", "commit"})
        EXPECT_GT(recorded[phase], 0) << phase;
}
#endif

TEST_F(EngineHostTest, PhasesCoverTheSteps) {
    run(files_.config());
    const auto snapshot = recorder_.snapshot();
    for (std::size_t i = 0; i < snapshot->steps.size(); ++i) {
        const StepPhases phases = step_phases(*snapshot, i);
        TimeNs sum = 0;
        for (const TimeNs ns : phases.ns) sum += ns;
        EXPECT_EQ(sum, phases.step_ns) << i;
        EXPECT_EQ(snapshot->steps[i].row.excluded, i < 2 ? Excluded::warmup : Excluded::no);
    }
    EXPECT_TRUE(snapshot->losses.empty());
}

TEST_F(EngineHostTest, ValidatesConfigsWithoutLoading) {
    EXPECT_TRUE(validate(files_.config()).ok());
    const auto message = [&](auto change) {
        RunConfig config = files_.config();
        change(config);
        const Status status = validate(config);
        if (status.ok()) return std::string();
        EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
        return status.error().message;
    };
    EXPECT_NE(message([](RunConfig& c) { c.head = "nope"; }).find("full"), std::string::npos);
    EXPECT_NE(message([](RunConfig& c) { c.drafter = "nope"; }).find("ngram"), std::string::npos);
    EXPECT_NE(message([](RunConfig& c) { c.tree = "depth=two"; }), "");
    EXPECT_NE(message([](RunConfig& c) { c.model = "/nonexistent"; }), "");
    EXPECT_NE(message([](RunConfig& c) { c.prompt = ""; }).find("--prompt"), std::string::npos);
    EXPECT_NE(message([](RunConfig& c) { c.head = "fr-spec:v=9"; }).find("ranking"), std::string::npos);
    const auto resolved = require(resolve_defaults(files_.config()));
    EXPECT_EQ(resolved.tree, "depth=3,topk=4,nodes=12");
}

TEST_F(EngineHostTest, FindsEveryMistakeOfAConfig) {
    RunConfig config = files_.config();
    EXPECT_TRUE(find_mistakes(config).empty());
    config.tree = "depth=two";
    config.shadow = "nope";
    config.max_new = 0;
    const std::vector<Mistake> mistakes = find_mistakes(config);
    ASSERT_EQ(mistakes.size(), 3u) << to_text(mistakes);
    std::set<std::string> fields;
    for (const Mistake& mistake : mistakes) fields.insert(mistake.field);
    EXPECT_EQ(fields, (std::set<std::string>{"Tree", "Shadow heads", "New tokens"}));
    config = files_.config();
    config.model = "/nonexistent.gguf";
    const std::string text = to_text(find_mistakes(config));
    EXPECT_EQ(text, "Model: no such file or folder");
}

TEST(Assets, FindsShippedFiles) {
    EXPECT_NE(find_asset("prompts/spec_bench_half.jsonl"), "");
    EXPECT_NE(find_asset("drafters/eagle2"), "");
    EXPECT_EQ(find_asset("drafters/none of them"), "");
}

TEST_F(EngineHostTest, OnlyChoosesWithoutARun) {
    RunConfig config = files_.config();
    config.tree = "auto";
    RunHooks hooks;
    hooks.only_choose = true;
    const RunReport report = run(config, hooks);
    EXPECT_FALSE(report.forecasts.empty());
    EXPECT_TRUE(recorder_.snapshot()->runs.empty());
}

}  // namespace
}  // namespace draftscope
