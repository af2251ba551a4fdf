#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "app/jobs/run/recorder.h"
#include "storage/capture_file.h"
#include "tests/support/capture_builder.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

// Returns every row of every table as text, tables in name order.
std::string dump(const std::string& path) {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    std::string out;
    const auto each = [&](const std::string& sql, auto visit) {
        sqlite3_stmt* statement = nullptr;
        ASSERT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr), SQLITE_OK)
            << sqlite3_errmsg(db);
        while (sqlite3_step(statement) == SQLITE_ROW) {
            std::string row;
            for (int c = 0; c < sqlite3_column_count(statement); ++c) {
                const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, c));
                row += std::string(text != nullptr ? text : "NULL") + "|";
            }
            visit(row);
        }
        sqlite3_finalize(statement);
    };
    std::vector<std::string> tables;
    each(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'meta' "
        "ORDER BY name",
        [&](const std::string& row) { tables.push_back(row.substr(0, row.size() - 1)); });
    for (const std::string& table : tables) {
        std::vector<std::string> rows;
        each("SELECT * FROM \"" + table + "\"", [&](const std::string& row) { rows.push_back(row); });
        std::sort(rows.begin(), rows.end());
        out += "== " + table + "\n";
        for (const std::string& row : rows) out += row + "\n";
    }
    sqlite3_close(db);
    return out;
}

void push_run(RecordSink& sink, RowId run) {
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 1;
    for (TokenId t = 0; t < 4; ++t)
        vocab->rows.push_back({1, t, std::string(1, static_cast<char>('a' + t)), "t", t, std::nullopt});
    RunStarted started;
    started.run.id = run;
    started.run.name = "eagle2 x full";
    started.run.started_monotonic = 1000;
    started.run.started_utc = "2026-01-01T00:00:00Z";
    started.run.vocab_id = 1;
    started.vocab = vocab;
    started.anchor = {run, 1000, 1767225600'000000000, std::nullopt};
    sink.push(started);
    PromptRow prompt;
    prompt.id = run;
    prompt.run_id = run;
    prompt.text = "Name three rivers.";
    sink.push(PromptStarted{prompt});
    SpansRecorded prefill;
    SpanRow span{.id = run * 10 + 1, .run_id = run, .phase_id = 1, .end_ns = 40};
    prefill.spans = {span};
    sink.push(prefill);
    TokenRow first{run, 0, 0, 1, TokenSource::prefill, 1, 2, true};
    sink.push(PromptProgress{run, "b", 1, 40, {first}});
    StepRecord step;
    step.step = {run, run, 0, 50, 90, 0, Excluded::no};
    span.id = run * 10 + 2;
    span.phase_id = 10;
    span.step_id = run;
    span.start_ns = 55;
    span.end_ns = 80;
    step.spans = {span};
    RoundRecord round;
    round.round = {run, run, run, run, 0, 50, 90, 5, 2, 1, 1, 1, 2, false, ""};
    NodeRow root, draft;
    root.round_id = draft.round_id = run;
    root.token_id = 1;
    draft.node = 1;
    draft.parent = 0;
    draft.depth = 1;
    draft.token_id = 2;
    draft.accepted = true;
    draft.target_prob = 0.5f;
    draft.target_rank = 0;
    root.target_token_id = 2;
    draft.target_token_id = 3;
    round.nodes = {root, draft};
    round.tops = {{run, 0, 0, 2, 0.5f}};
    round.tokens = {{run, 1, run, 2, TokenSource::draft, 1, 0, true},
                    {run, 2, run, 3, TokenSource::bonus, 2, {}, false}};
    HeadEvalRow eval;
    eval.run_id = run;
    eval.round_id = run;
    eval.head = "full";
    eval.committed = 2;
    round.head_evals = {eval};
    step.rounds = {round};
    sink.push(step);
    sink.push(LossRow{run, 60, "span_ring_full", 2});
    sink.push(CounterRow{run, 61, "power_w", 12.5});
    sink.push(NoteRow{run, run, 62, "look"});
    prompt.output = "bcd";
    prompt.generated_tokens = 3;
    prompt.prefill_ns = 40;
    prompt.finish = Finish::length;
    sink.push(PromptEnded{prompt});
    sink.push(RunEnded{run, RunEnd::ok, 100, {run, 1100, 1767225600'000000100, std::nullopt}});
}

/// Saves under a limit of the file size in a child process; returns 0 if that is refused with a message that
/// names the file.
int save_on_full_disk(const Snapshot& snapshot, const std::string& path, rlim_t bytes) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        const Status saved = save_snapshot(snapshot, path);
        _exit(saved.ok() ? 1 : saved.error().message.find(path) == std::string::npos ? 2 : 0);
    }
    int ended = 0;
    waitpid(child, &ended, 0);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 3;
}

TEST(SnapshotRecords, AFullDiskLeavesNoFiles) {
    const testing::ScratchFolder folder;
    testing::CaptureBuilder built;
    for (int step = 0; step < 2000; ++step) built.step(10 * step, 10 * step + 9);
    const Snapshot snapshot = built.snapshot();
    for (const rlim_t bytes : {rlim_t{5'000}, rlim_t{150'000}, rlim_t{250'000}}) {
        EXPECT_EQ(save_on_full_disk(snapshot, folder.file("a.dscope"), bytes), 0) << bytes;
        EXPECT_TRUE(fs::is_empty(folder.path())) << bytes;
    }
}

TEST(SnapshotRecords, CopyContainsTheSameRows) {
    const testing::ScratchFolder folder;
    const std::string original = folder.file("a.dscope"), copy = folder.file("b.dscope");
    {
        auto writer = require(CaptureWriter::create(original, false));
        push_run(*writer, 1);
        push_run(*writer, 2);
        ASSERT_TRUE(writer->close().ok());
    }
    const auto loaded = require(load_capture(original));
    ASSERT_TRUE(save_snapshot(*loaded, copy).ok());
    EXPECT_FALSE(fs::exists(copy + ".saving"));
    ASSERT_TRUE(save_snapshot(*loaded, copy).ok());  // replaces the existing file
    EXPECT_FALSE(save_snapshot(*loaded, folder.file("none/b.dscope")).ok());
    std::ofstream(copy + "-wal") << "of a run that was killed";
    const Status over_a_log = save_snapshot(*loaded, copy);
    ASSERT_FALSE(over_a_log.ok());
    EXPECT_NE(over_a_log.error().message.find("b.dscope-wal"), std::string::npos);
    fs::remove(copy + "-wal");
    EXPECT_EQ(dump(original), dump(copy));
    const auto checked = require(check_capture(copy));
    for (const CheckFinding& finding : checked.findings) ADD_FAILURE() << finding.what;
}

}  // namespace
}  // namespace draftscope
