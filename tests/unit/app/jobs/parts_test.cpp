#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "app/jobs/bench/bench_job.h"
#include "app/jobs/run/pool.h"
#include "app/jobs/run/run_job.h"
#include "storage/capture_file.h"
#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

/// Runs in parts: shards that are pooled, and runs that are resumed. Every figure that is not a time must be
/// that of one run.
namespace draftscope {
namespace {

using testing::TinyFiles;

/// Returns the rows of a query, with every bit of real numbers.
std::string rows_text(const std::string& path, const std::string& query) {
    sqlite3* db = nullptr;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK) << path;
    EXPECT_EQ(sqlite3_prepare_v2(db, query.c_str(), -1, &statement, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    std::string out;
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int c = 0; c < sqlite3_column_count(statement); ++c) {
            const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, c));
            out += sqlite3_column_type(statement, c) == SQLITE_FLOAT
                       ? fmt::format("{:a}|", sqlite3_column_double(statement, c))
                       : fmt::format("{}|", text == nullptr ? "NULL" : text);
        }
        out += "\n";
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return out;
}

class Parts : public ::testing::Test {
  protected:
    void SetUp() override {
        std::ofstream prompts(files_.file("prompts.jsonl"));
        for (int i = 0; i < 5; ++i)
            prompts << R"({"question_id": )" << i << R"(, "category": ")" << (i % 2 == 0 ? "even" : "odd")
                    << R"(", "turns": ["hello you )" << i << R"(", "and the"]})"
                    << "\n";
    }
    /// Samples, so that a text depends on the seed and on its place.
    RunConfig config(const std::string& save) const {
        RunConfig made = files_.config(10);
        made.prompt.clear();
        made.prompts_file = files_.file("prompts.jsonl");
        made.raw = true;
        made.temperature = 1;
        made.seed = 4;
        made.baseline = 3;
        made.shadow = "microspec:wmax=64";
        made.save = files_.file(save);
        return made;
    }
    RunReport run(const RunConfig& config, const RunHooks& hooks = {}) {
        EngineHost host;
        Recorder recorder;
        DebugGate gate;
        RunHooks all = hooks;
        int pieces = 0;
        if (stop_after_ > 0)
            all.on_text = [&](std::string_view) {
                if (++pieces == stop_after_) gate.cancel();
            };
        auto done = host.run(config, recorder, gate, all);
        if (!done.ok()) {
            ADD_FAILURE() << done.error().message;
            return {};
        }
        return std::move(*done);
    }
    Error error_of(const RunConfig& config) {
        EngineHost host;
        Recorder recorder;
        DebugGate gate;
        auto done = host.run(config, recorder, gate, {});
        EXPECT_FALSE(done.ok());
        return done.ok() ? Error() : done.error();
    }

    /// Returns every figure of a capture that is not a time.
    static std::string figures(const std::string& path) {
        std::string out;
        for (const char* query :
             {"SELECT id, run_id, ordinal, external_id, turn, suite, category, text, output, prompt_tokens, "
              "generated_tokens, finish FROM prompt ORDER BY id",
              "SELECT id, run_id, ordinal FROM step ORDER BY id",
              "SELECT id, run_id, step_id, prompt_id, ordinal, context_length, tree_nodes, tree_depth, "
              "drafted, "
              "accepted, committed, clipped FROM round ORDER BY id",
              "SELECT * FROM node ORDER BY rowid", "SELECT * FROM node_top ORDER BY rowid",
              "SELECT prompt_id, position, round_id, token_id, source, depth, rank, covered FROM token "
              "ORDER BY prompt_id, position",
              "SELECT run_id, round_id, head, mode, active_rows, bytes, accepted, committed, covered, "
              "covered_mass, flops FROM head_eval ORDER BY rowid",
              "SELECT run_id, head, mode, rounds, tau, rho_tau, coverage, covered_mass, active_rows, bytes, "
              "tau_unclipped FROM v_head",
              // A head that works on a side lane has spans that depend on how its work overlaps.
              "SELECT run_id, phase_id, level, rows, bytes FROM span WHERE step_id NOT NULL AND phase_id IN "
              "(SELECT id FROM phase WHERE name IN ('backbone', 'verify')) ORDER BY id",
              "SELECT run_id, suite, category, depth, emitted, covered, coverage FROM v_coverage"})
            out += rows_text(path, query) + "\n";
        return out;
    }

    TinyFiles files_;
    int stop_after_ = 0;
};

TEST_F(Parts, PooledShardsEqualTheWhole) {
    run(config("whole.dscope"));
    std::vector<std::string> shards;
    for (int i = 1; i <= 3; ++i) {
        RunConfig shard = config("shard" + std::to_string(i));
        shard.shard = {i, 3};
        run(shard);
        shards.push_back(shard.save);
    }
    const std::string pooled = files_.file("pooled.dscope");
    std::swap(shards[0], shards[2]);  // their order does not matter
    const auto done = require(pool_captures(pooled, shards));
    EXPECT_EQ(done.parts, 6u);
    EXPECT_EQ(done.runs, 2u);
    EXPECT_EQ(figures(pooled), figures(files_.file("whole.dscope")));
    EXPECT_TRUE(require(check_capture(pooled)).findings.empty());
    const auto snapshot = require(load_capture(pooled));
    for (std::size_t i = 1; i < snapshot->steps.size(); ++i)
        if (snapshot->steps[i].row.run_id == snapshot->steps[i - 1].row.run_id) {
            EXPECT_GE(snapshot->steps[i].row.start_ns, snapshot->steps[i - 1].row.end_ns) << i;
        }

    const auto error = [&](std::vector<std::string> files) {
        const auto refused = pool_captures(files_.file("other.dscope"), files);
        return refused.ok() ? "" : refused.error().message;
    };
    EXPECT_NE(error({shards[0], shards[1]}).find("shard 1/3 is missing"), std::string::npos);
    EXPECT_NE(error({shards[0], shards[1], shards[2], shards[2]}).find("have the same conversation"),
              std::string::npos);
    RunConfig longer = config("longer");
    longer.shard = {1, 3};
    longer.max_new = 11;
    run(longer);
    EXPECT_NE(error({longer.save, shards[0], shards[1]}).find("max-new (11 and 10)"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(files_.file("other.dscope")));
}

class Resumed : public Parts, public ::testing::WithParamInterface<std::pair<int, int>> {};

/// Interrupts a run in its second conversation, and in its baseline, and continues it.
TEST_P(Resumed, RunEqualsAnUninterruptedOne) {
    const auto [pieces, batch] = GetParam();
    RunConfig whole = config("whole.dscope");
    whole.batch = batch;
    const RunReport uninterrupted = run(whole);
    RunConfig cut = whole;
    cut.save = files_.file("cut.dscope");
    cut.resume = true;  // there is nothing to continue yet
    stop_after_ = pieces;
    const RunReport stopped = run(cut);
    EXPECT_TRUE(stopped.cancelled);
    stop_after_ = 0;
    const RunReport resumed = run(cut);
    EXPECT_FALSE(resumed.cancelled);
    EXPECT_GT(resumed.resumed_conversations, 0u);
    EXPECT_LT(resumed.resumed_conversations, 5u);
    ASSERT_EQ(resumed.prompts.size(), uninterrupted.prompts.size());
    for (std::size_t i = 0; i < resumed.prompts.size(); ++i) {
        EXPECT_EQ(resumed.prompts[i].ordinal, uninterrupted.prompts[i].ordinal);
        EXPECT_EQ(resumed.prompts[i].outcome.tokens, uninterrupted.prompts[i].outcome.tokens);
        EXPECT_EQ(resumed.prompts[i].outcome.committed, uninterrupted.prompts[i].outcome.committed);
    }
    EXPECT_TRUE(require(check_capture(cut.save)).findings.empty());
    EXPECT_FALSE(std::filesystem::exists(cut.save + ".resuming"));
    if (batch == 1) {
        EXPECT_EQ(figures(cut.save), figures(whole.save));
    }
    // A complete run is left as it is.
    EXPECT_EQ(run(cut).resumed_conversations, 5u);
    if (batch == 1) {
        EXPECT_EQ(figures(cut.save), figures(whole.save));
    }
}
// With a batch of 1, text comes in pieces; otherwise once for each prompt.
INSTANTIATE_TEST_SUITE_P(Interrupted, Resumed, ::testing::Values(std::pair(25, 1), std::pair(5, 3)));

TEST_F(Parts, ResumeRefusesOtherSettings) {
    const RunConfig first = config("a.dscope");
    run(first);
    const std::string before = figures(first.save);
    RunConfig other = first;
    other.resume = true;
    other.max_new = 12;
    EXPECT_NE(error_of(other).message.find("max-new (10 and 12)"), std::string::npos);
    other = first;
    other.resume = true;
    other.shard = {1, 2};
    EXPECT_NE(error_of(other).message.find("number of shards (1 and 2)"), std::string::npos);
    other.shard = {};
    other.tags = {"node=a"};
    EXPECT_NE(error_of(other).message.find("tags"), std::string::npos);
    EXPECT_EQ(figures(first.save), before);
}

/// If the program is killed while it copies, the earlier capture is still there.
TEST_F(Parts, ResumeSurvivesItsOwnDeath) {
    RunConfig cut = config("cut.dscope");
    stop_after_ = 25;
    run(cut);
    stop_after_ = 0;
    std::filesystem::rename(cut.save, cut.save + ".resuming");
    std::ofstream(cut.save) << "half a copy";
    cut.resume = true;
    EXPECT_GT(run(cut).resumed_conversations, 0u);
    run(config("whole.dscope"));
    EXPECT_EQ(figures(cut.save), figures(files_.file("whole.dscope")));
}

class BenchParts : public Parts {
  protected:
    BenchConfig bench(const std::string& save) const {
        BenchConfig made;
        made.run = config(save);
        made.run.shadow.clear();
        made.block = 2;
        made.repeat = 2;
        made.heads = {"full", "microspec:wmax=64"};
        return made;
    }
    DebugGate gate_;
};

TEST_F(BenchParts, PooledShardsEqualTheWhole) {
    const std::string whole = files_.file("whole.dscope"), pooled = files_.file("pooled.dscope");
    const auto done = require(run_bench(bench("blocks.dscope"), gate_, {}));
    EXPECT_EQ(done.capture, files_.file("blocks.dscope"));
    // Three methods and the noise floor, in two repetitions of three blocks.
    EXPECT_EQ(require(read_runs(done.capture)).size(), 24u);
    EXPECT_EQ(require(pool_captures(whole, {done.capture})).runs, 8u);
    std::vector<std::string> shards;
    for (int i = 1; i <= 2; ++i) {
        BenchConfig shard = bench("shard" + std::to_string(i));
        shard.run.shard = {i, 2};
        shards.push_back(require(run_bench(shard, gate_, {})).capture);
    }
    EXPECT_EQ(require(pool_captures(pooled, shards)).runs, 8u);
    const auto by_method = [](const std::string& path) {
        return rows_text(
            path,
            "SELECT config_json ->> '$.bench', p.external_id, p.turn, p.output, count(*), sum(committed), "
            "sum(accepted) FROM run JOIN prompt p ON p.run_id = run.id JOIN round r ON r.prompt_id = p.id "
            "GROUP BY p.id ORDER BY 1, p.ordinal");
    };
    EXPECT_EQ(by_method(pooled), by_method(whole));
}

TEST_F(BenchParts, ResumedBenchHasTheSamplesOfAWholeOne) {
    const auto whole = require(run_bench(bench("whole.dscope"), gate_, {}));
    BenchConfig cut = bench("cut.dscope");
    cut.run.resume = true;
    JobHooks hooks;
    int turns = 0;
    hooks.on_progress = [&](double, const std::string&) {
        if (++turns == 9) gate_.cancel();
    };
    const auto stopped = require(run_bench(cut, gate_, hooks));
    EXPECT_TRUE(stopped.cancelled);
    const std::size_t kept = require(read_runs(stopped.capture)).size();
    EXPECT_GT(kept, 0u) << "an interrupted bench keeps its blocks";
    EXPECT_LT(kept, 24u);
    EXPECT_FALSE(pool_captures(files_.file("p.dscope"), {stopped.capture}).ok());
    DebugGate gate;
    const auto resumed = require(run_bench(cut, gate, {}));
    EXPECT_FALSE(resumed.cancelled);
    EXPECT_EQ(resumed.same, whole.same);
    ASSERT_EQ(resumed.samples.methods.size(), whole.samples.methods.size());
    for (std::size_t m = 0; m < whole.samples.methods.size(); ++m)
        for (std::size_t r = 0; r < 2; ++r)
            for (std::size_t p = 0; p < whole.samples.prompts.size(); ++p) {
                const HeadSample &a = resumed.samples.methods[m].units[r][p],
                                 &b = whole.samples.methods[m].units[r][p];
                EXPECT_EQ(a.rounds, b.rounds) << m << r << p;
                EXPECT_EQ(a.committed, b.committed) << m << r << p;
            }
    EXPECT_EQ(figures(resumed.capture), figures(whole.capture));
    cut.heads = {"full"};
    const auto refused = run_bench(cut, gate, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("microspec:wmax=64, repetition 1"), std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace draftscope
