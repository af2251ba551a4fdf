#include "app/jobs/sweep/sweep_job.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "app/jobs/replay/record_job.h"
#include "storage/sweep_file.h"
#include "tests/support/results.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/jobs/tiny_slimspec.h"

/// Sweeps that share models, are continued, and notice changed files.
namespace draftscope {
namespace {

using testing::TinyFiles;

class SweepJob : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        files_ = new TinyFiles;
        std::ofstream prompts(files_->file("prompts.jsonl"));
        for (int i = 0; i < 7; ++i)
            prompts << R"({"question_id": )" << i << R"(, "turns": ["hello you )" << i << R"(", "and the"]})"
                    << "\n";
        prompts.close();
        record("recorded", 12);
        std::ofstream(files_->file("profile.json")) << profile_text();
    }
    static void TearDownTestSuite() { delete files_; }

    static void record(const std::string& name, int max_new) {
        RecordConfig config;
        config.run = files_->config(max_new);
        config.run.prompt.clear();
        config.run.prompts_file = files_->file("prompts.jsonl");
        config.run.raw = true;
        config.out = files_->file(name);
        config.source = "test";
        config.times = false;
        EXPECT_TRUE(is_ok(run_record(config, {})));
    }
    static std::string profile_text() {
        return R"({"format": "draftscope-profile", "version": 1, "kind": "measured", "source": "test",
            "machine": "test machine", "backend": "cpu", "precision": "f32", "model": "tiny", "vocab": )" +
               std::to_string(testing::tiny_gguf_vocab()) + R"(, "hidden": 64, "layers": 2, "costs": [
            {"part": "verify", "terms": {"fixed": 5.0, "row": 0.01, "cached": 0.001}},
            {"part": "overhead", "terms": {"fixed": 0.5}},
            {"part": "catch_up", "drafter": "eagle2", "terms": {"fixed": 0.05, "row": 0.01}},
            {"part": "level", "drafter": "eagle2", "terms": {"fixed": 0.03}},
            {"part": "head", "drafter": "eagle2", "head": "full", "terms": {"fixed": 0.05}},
            {"part": "head", "drafter": "eagle2", "head": "slimspec", "size_parameter": "rank",
             "terms": {"fixed": 0.01, "size": 0.001}},
            {"part": "draft", "drafter": "ngram", "terms": {"fixed": 0.1}}]})";
    }
    static SweepConfig config(const std::string& save = "") {
        SweepConfig made;
        made.replay.recording = files_->file("recorded");
        made.replay.model = files_->model();
        made.replay.threads = 1;
        made.drafters = {"eagle2:" + files_->file("eagle2")};
        made.heads = {"full"};
        made.trees = {.chain = 2, .topks = {2}, .depth = 1, .nodes = {4}};
        made.profile = files_->file("profile.json");
        if (!save.empty()) made.save = files_->file(save);
        return made;
    }

    static TinyFiles* files_;
};
TinyFiles* SweepJob::files_ = nullptr;

TEST_F(SweepJob, SearchLoadsEachModelOnce) {
    std::map<std::string, int> loads;
    JobHooks hooks;
    hooks.on_progress = [&](double, const std::string& what) {
        if (what.starts_with("loading drafter") || what.starts_with("packing") ||
            what.starts_with("opening the recording"))
            ++loads[what];
    };
    SweepConfig searched = config();
    searched.drafters.emplace_back("ngram");
    const SweepReport report = require(run_search(searched, hooks));
    EXPECT_GE(report.passes, 4u);  // of several sweeps
    EXPECT_EQ(loads["packing the LM head"], 1);
    EXPECT_EQ(loads["loading drafter eagle2"], 1);
    EXPECT_EQ(loads["loading drafter ngram"], 1);
    EXPECT_EQ(loads["opening the recording"], 0);  // the search has opened it
}

TEST_F(SweepJob, AHeadsFileGivesTheSizeThatItsCostDependsOn) {
    SweepConfig given = config();
    given.heads = {"full", "slimspec"};
    given.replay.artefacts = {"slimspec=" + testing::save_tiny_slimspec(*files_, 10)};
    const SweepReport report = require(run_sweep(given, {}));
    EXPECT_TRUE(report.skipped.empty()) << report.skipped.front();
    std::map<std::string, double> head_ms;
    for (const SweepSetting& one : report.settings)
        if (one.tree == "chain=2") head_ms[one.head] = one.head_ms;
    ASSERT_TRUE(head_ms.contains("slimspec:rank=10"));
    EXPECT_NEAR(head_ms["slimspec:rank=10"], 2 * 0.02, 1e-9);  // a call for each of two levels
}

/// Returns tau by tree.
std::map<std::string, double> taus(const SweepReport& report) {
    std::map<std::string, double> out;
    for (const SweepSetting& one : report.settings) out[one.tree] = one.total().tau().value_or(0);
    return out;
}

TEST_F(SweepJob, SettingsWithChangedWeightsAreSweptAgain) {
    SweepConfig saved = config("weights.dscope");
    const std::string folder = files_->file("changing");
    std::filesystem::copy(files_->file("eagle2"), folder);
    saved.drafters = {"eagle2:" + folder};
    const SweepReport first = require(run_sweep(saved, {}));
    EXPECT_EQ(require(run_sweep(saved, {})).passes, 0u);
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(testing::write_tiny_eagle2(folder, 6).ok());
    const SweepReport again = require(run_sweep(saved, {}));
    EXPECT_EQ(again.passes, first.passes);
    ASSERT_EQ(again.notes.size(), 1u);
    EXPECT_NE(again.notes[0].find("weights.dscope: 3 settings of eagle2:" + folder + " x full are not used"),
              std::string::npos)
        << again.notes[0];
    EXPECT_NE(again.notes[0].find("weights changed"), std::string::npos) << again.notes[0];
    SweepConfig unsaved = saved;
    unsaved.save.clear();
    EXPECT_EQ(taus(again), taus(require(run_sweep(unsaved, {}))));
    EXPECT_EQ(require(run_sweep(saved, {})).notes.size(), 0u);
}

TEST_F(SweepJob, SettingsOfAnotherRecordingAreNotTakenOver) {
    SweepConfig saved = config("recording.dscope");
    const SweepReport first = require(run_sweep(saved, {}));
    record("longer", 16);
    saved.replay.recording = files_->file("longer");
    saved.replay.max_new = 12;  // as long as the first one, so that names and lengths are equal
    const SweepReport other = require(run_sweep(saved, {}));
    EXPECT_EQ(other.passes, first.passes);
    ASSERT_EQ(other.notes.size(), 1u);
    for (const std::string& part : {first.source, other.source})
        EXPECT_NE(other.notes[0].find(part), std::string::npos) << other.notes[0];
}

/// Every column of the pooled sweep is that of one sweep, bit for bit.
TEST_F(SweepJob, PooledShardsEqualTheWholeSweep) {
    SweepConfig whole = config("whole.dscope");
    whole.drafters.emplace_back("ngram");
    whole.batches = {1, 4};
    require(run_sweep(whole, {}));
    std::vector<std::string> shards;
    for (int index = 1; index <= 2; ++index) {
        SweepConfig part = whole;
        shards.push_back(files_->file("shard" + std::to_string(index) + ".dscope"));
        part.save = shards.back();
        part.replay.shard = {index, 2};
        require(run_sweep(part, {}));
    }
    EXPECT_TRUE(require(is_sweep_file(shards[0])));
    const std::string pooled = files_->file("pooled.dscope");
    const auto refused = [&](const std::vector<std::string>& files, const std::string& profile,
                             const std::string& part) {
        const auto done = pool_sweeps(pooled, files, profile);
        ASSERT_FALSE(done.ok()) << part;
        EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
        EXPECT_NE(done.error().message.find(part), std::string::npos) << done.error().message;
        EXPECT_FALSE(std::filesystem::exists(pooled));
    };
    refused({shards[0]}, whole.profile, "shard 2/2 is missing");
    refused({shards[0], shards[0]}, whole.profile, "shard 1/2 is in");
    refused({shards[0], whole.save}, whole.profile, "is not of a shard");
    refused(shards, "", "--profile");
    std::string other = profile_text();
    other.replace(other.find("5.0"), 3, "6.0");
    std::ofstream(files_->file("other.json")) << other;
    refused(shards, files_->file("other.json"), "other.json");
    EXPECT_EQ(require(pool_sweeps(pooled, shards, whole.profile)), 2u * (3 + 2));
    std::map<std::string, SweptRow> expected;
    const std::vector<SweptSource> wholes = require(read_all_swept(whole.save));
    ASSERT_EQ(wholes.size(), 1u);
    for (const SweptRow& row : wholes[0].rows)
        expected[row.drafter + row.tree + std::to_string(row.batch)] = row;
    const std::vector<SweptSource> sweeps = require(read_all_swept(pooled));
    ASSERT_EQ(sweeps.size(), 1u);
    const std::vector<SweptRow>& rows = sweeps[0].rows;
    ASSERT_EQ(rows.size(), expected.size());
    for (const SweptRow& row : rows) {
        const SweptRow& one = expected.at(row.drafter + row.tree + std::to_string(row.batch));
        EXPECT_EQ(std::tie(row.source, row.head, row.units, row.exact, row.extrapolated, row.on_front),
                  std::tie(one.source, one.head, one.units, one.exact, one.extrapolated, one.on_front));
        const auto numbers = [](const SweptRow& of) {
            return std::vector{of.tau,
                               of.tau_low,
                               of.tau_high,
                               of.tokens_per_second,
                               of.tokens_per_second_low,
                               of.tokens_per_second_high,
                               of.speedup,
                               of.speedup_low,
                               of.speedup_high,
                               of.round_ms,
                               of.plain_ms};
        };
        EXPECT_EQ(numbers(row), numbers(one)) << row.tree;
    }
    // The context, the weights and the oracles are those of one sweep, too.
    EXPECT_EQ(sweeps[0].about, wholes[0].about);
    // A shard that lacks a setting is named.
    SweepConfig part = whole;
    part.save = files_->file("less.dscope");
    part.replay.shard = {2, 2};
    part.trees.chain = 1;
    require(run_sweep(part, {}));
    std::filesystem::remove(pooled);
    refused({shards[0], part.save}, whole.profile, "shard 2/2 in " + part.save + " lacks");
}

TEST_F(SweepJob, OraclesBoundTheChains) {
    SweepConfig both = config("oracle.dscope");
    both.drafters.emplace_back("ngram");
    both.trees.chain = 4;
    const SweepReport report = require(run_sweep(both, {}));
    ASSERT_EQ(report.oracles.size(), 3u);
    double longest = 0;
    for (const OracleLine& line : report.oracles) {
        EXPECT_EQ(line.levels, 4);
        if (line.drafters.size() == 2) {
            EXPECT_GE(line.tau(), longest - 0.2);  // a longer draft may lead to a worse place
            continue;
        }
        longest = std::max(longest, line.tau());
        for (const SweepSetting& one : report.settings) {
            if (one.drafter != line.drafters[0] || one.tree != "chain=4") continue;
            EXPECT_DOUBLE_EQ(line.tau(), one.total().tau().value_or(0));
            double positions = 0;
            for (const double sum : line.positions[0]) positions += sum;
            EXPECT_EQ(positions, one.total().positions) << "both have the same rounds";
            EXPECT_GT(line.speedup(), one.speedup()) << one.drafter;
        }
    }
    const SweepReport again = require(run_sweep(both, {}));
    EXPECT_EQ(again.passes, 0u);
    ASSERT_EQ(again.oracles.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(again.oracles[i].rounds, report.oracles[i].rounds);
        EXPECT_EQ(again.oracles[i].positions, report.oracles[i].positions);
        EXPECT_EQ(again.oracles[i].round_ms, report.oracles[i].round_ms);
    }
}

}  // namespace
}  // namespace draftscope
