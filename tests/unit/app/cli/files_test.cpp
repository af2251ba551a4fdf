#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

// Captures on disk: invalid and interrupted files, a full disk, exports.
namespace draftscope::testing {
namespace {

using nlohmann::json;

class Files : public ::testing::Test {
  protected:
    std::vector<std::string> command(std::vector<std::string> more, int max_new = 30, int context = 256) {
        return arguments("run --model {} --drafter ngram --prompt {} --ignore-eos --max-new {}",
                         tiny_model(folder_, context), "hello you", std::to_string(max_new)) +
               more;
    }
    std::string recorded() {
        const std::string path = folder_.file("run.dscope");
        const ProcessResult done = run(folder_, command({"--save", path, "--quiet"}));
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return path;
    }

    ScratchFolder folder_;
};

TEST_F(Files, NotACapture) {
    write_text(folder_.file("notes.txt"),
               "nothing of the kind, but long enough to hold a header of some sort ......");
    { Sql(folder_.file("other.db"), true).exec("CREATE TABLE t(x)"); }
    for (const char* name : {"notes.txt", "other.db"}) {
        const std::string path = folder_.file(name);
        expect_one_line_error(run(folder_, {"stats", path}), {path, "not a Draftscope capture"});
        expect_one_line_error(run(folder_, {"check", path}), {path, "not a Draftscope capture"});
        expect_one_line_error(run(folder_, {"check", "--repair", path}), {path, "not a Draftscope capture"});
        for (const char* format : {"sqlite", "csv", "chrome"})
            expect_one_line_error(
                run(folder_, {"export", path, "--format", format, "--out", folder_.file("out")}),
                {path, "not a Draftscope capture"});
    }
    expect_one_line_error(run(folder_, {"stats", folder_.file("missing")}), {"missing"});
}

TEST_F(Files, ExportsSayWhatTheyCannotWriteAndHowToOpenWhatTheyWrote) {
    const std::string path = recorded(), trace = folder_.file("t.json.gz");
    for (const char* format : {"sqlite", "chrome", "nsys"})
        expect_one_line_error(run(folder_, {"export", path, "--format", format, "--out", "/dev/full"}),
                              {"/dev/full: not a regular file", "--out -"});
    const ProcessResult done = run(folder_, {"export", path, "--format", "chrome", "--out", trace});
    EXPECT_NE(done.err.find("t.json.gz; open it at https://ui.perfetto.dev"), std::string::npos) << done.err;
}

TEST_F(Files, CaptureOfANewerVersion) {
    const std::string path = recorded();
    { Sql(path, true).exec("PRAGMA user_version = 999"); }
    for (const char* subcommand : {"stats", "check"})
        expect_one_line_error(run(folder_, {subcommand, path}), {path, "newer", "999"});
}

TEST_F(Files, RecordedCaptureIsIntact) {
    const std::string path = recorded();
    const ProcessResult done = run(folder_, {"check", path, "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.out;
    const json report = json::parse(done.out, nullptr, false);
    EXPECT_EQ(report["findings"], json::array());
    EXPECT_GT(report["rows"]["round"], 0);
    EXPECT_GT(report["rows"]["span"], 0);
    EXPECT_GT(report["rows"]["node"], 0);
    EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
    const ProcessResult text = run(folder_, {"stats", path});
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("remainder"), std::string::npos);
    EXPECT_NE(text.out.find("tau "), std::string::npos);
}

TEST_F(Files, DamageIsAFinding) {
    const std::string path = recorded();
    { Sql(path, true).exec("UPDATE round SET committed = 500"); }
    const ProcessResult done = run(folder_, {"check", path});
    EXPECT_EQ(done.exit_code, 1) << done.out << done.err;
    EXPECT_NE(done.out.find("finding"), std::string::npos);
}

TEST_F(Files, Exports) {
    const std::string path = recorded();
    const ProcessResult chrome =
        run(folder_, {"export", path, "--format", "chrome", "--out", folder_.file("trace.json")});
    ASSERT_EQ(chrome.exit_code, 0) << chrome.err;
    const json trace = json::parse(read_text(folder_.file("trace.json")), nullptr, false);
    EXPECT_TRUE(trace.contains("traceEvents"));
    ASSERT_EQ(run(folder_, {"export", path, "--format", "csv", "--out", folder_.file("csv")}).exit_code, 0);
    EXPECT_TRUE(std::filesystem::exists(folder_.file("csv/v_phase.csv")));
    ASSERT_EQ(run(folder_,
                  {"export", path, "--format", "sqlite", "--no-text", "--out", folder_.file("small.dscope")})
                  .exit_code,
              0);
    EXPECT_EQ(Sql(folder_.file("small.dscope")).text("SELECT text FROM prompt"), "");
    EXPECT_EQ(Sql(path).text("SELECT text FROM prompt"), "hello you");
    ASSERT_EQ(run(folder_, {"export", path, "--to", "nsys", "--out", folder_.file("a.sqlite")}).exit_code, 0);
    const Sql nsys(folder_.file("a.sqlite"));
    EXPECT_EQ(
        nsys.number("SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"),
        Sql(path).number("SELECT (SELECT count(*) FROM span WHERE lane = 0) + (SELECT count(*) FROM step)"));
    expect_one_line_error(run(folder_, {"export", path, "--format", "xlsx", "--out", folder_.file("x")}),
                          {"xlsx", "sqlite, csv, chrome"});
}

TEST_F(Files, FailedExportLeavesNoFile) {
    const std::string path = recorded(), again = folder_.file("again.dscope");
    ASSERT_EQ(run(folder_, command({"--save", again, "--quiet"})).exit_code, 0);
    std::filesystem::create_directory(folder_.file("exports"));
    StartOptions options;
    options.largest_file = 4096;
    for (const char* format : {"sqlite", "csv", "chrome", "nsys"}) {
        const ProcessResult done =
            run(folder_, {"export", path, "--to", format, "--out", folder_.file("exports/out")}, options);
        EXPECT_EQ(done.exit_code, 1) << format << done.err;
    }
    EXPECT_EQ(run(folder_, {"merge", folder_.file("exports/out"), path, again}, options).exit_code, 1);
    EXPECT_TRUE(std::filesystem::is_empty(folder_.file("exports")));
}

TEST_F(Files, ExportsOneFileToStdout) {
    const std::string path = recorded();
    const ProcessResult chrome = run(folder_, {"export", path, "--to", "chrome", "--out", "-"});
    EXPECT_EQ(chrome.exit_code, 0) << chrome.err;
    EXPECT_TRUE(json::parse(chrome.out, nullptr, false).contains("traceEvents"));
    EXPECT_NE(chrome.out.find("\"name\":\"prompt 1 round 1\""), std::string::npos);
    EXPECT_EQ(chrome.out.find("\"name\":\"step 0\""), std::string::npos);
    EXPECT_EQ(run(folder_, {"export", path, "--to", "sqlite", "--out", "-"}).out.substr(0, 6), "SQLite");
    for (const char* format : {"csv", "png"})
        expect_one_line_error(run(folder_, {"export", path, "--to", format, "--out", "-"}),
                              {"--out -", format, "folder"});
    EXPECT_FALSE(std::filesystem::exists("-"));
}

#ifdef DS_WITH_GUI
TEST_F(Files, PlotsAsPictures) {
    const std::string path = recorded();
    const ProcessResult all = run(folder_, {"export", path, "--to", "png", "--out", folder_.file("plots")});
    ASSERT_EQ(all.exit_code, 0) << all.err;
    for (const char* plot : {"breakdown", "latency", "rejections", "plane", "coverage", "tree"}) {
        const std::string picture = read_text(folder_.file("plots/" + std::string(plot) + ".png"));
        EXPECT_EQ(picture.substr(1, 3), "PNG") << plot;
        EXPECT_NE(all.err.find(plot), std::string::npos);
    }
    const ProcessResult one =
        run(folder_, {"export", path, "--to", "png", "--plots", "tree", "--round", "2", "--width", "400",
                      "--height", "300", "--out", folder_.file("tree.png")});
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const auto plots = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"export", path, "--to", "png", "--out", folder_.file("x.png")});
        return run(folder_, more);
    };
    expect_one_line_error(plots({}), {"x.png", "--plots"});
    expect_one_line_error(plots({"--plots", "pie"}), {"pie", "breakdown"});
    expect_one_line_error(plots({"--plots", "tree", "--round", "9999"}), {"--round 9999"});
    expect_one_line_error(plots({"--plots", "tree", "--run", "7"}), {"--run 7"});
    expect_one_line_error(plots({"--plots", "tree", "--theme", "pink"}), {"pink"});
}
#endif

TEST_F(Files, RecordsAnUnavailableTier) {
    const std::string path = folder_.file("t.dscope");
    const ProcessResult done = run(folder_, command({"--save", path, "--tier", "2", "--json"}, 8));
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const json document = json::parse(done.out, nullptr, false);
    EXPECT_EQ(document["tier"], "T0");
    EXPECT_EQ(document["tier_asked"], "T2");
    EXPECT_TRUE(document["tier_note"].is_string());
    EXPECT_TRUE(document["cupti"]["state"].is_string());
    EXPECT_NE(done.err.find("T2"), std::string::npos);
    const Sql sql(path);
    EXPECT_EQ(sql.text("SELECT tier FROM run"), "T0");
    EXPECT_EQ(sql.text("SELECT json_extract(config_json, '$.tier_asked') FROM run"), "T2");
    EXPECT_EQ(sql.text("SELECT json_extract(config_json, '$.tier_note') FROM run"),
              document["tier_note"].get<std::string>());
    expect_one_line_error(run(folder_, command({"--tier", "five"})), {"--tier five", "0 (clocks)"});
}

TEST_F(Files, FullDiskKeepsRecordedRows) {
    const std::string path = folder_.file("full.dscope");
    const ProcessResult done = run(folder_, command({"--save", path, "--quiet"}, 4000, 8192), {400 * 1024});
    EXPECT_EQ(done.exit_code, 1) << done.err;
    EXPECT_NE(done.err.find(path), std::string::npos) << done.err;
    EXPECT_NE(done.out.find("tau"), std::string::npos);  // the run completed
    // The rows recorded earlier are stored. A file size limit leaves no space for the run's end, unlike a
    // full disk with reserved space, so repair closes the file.
    EXPECT_NE(done.out.find("storage_error"), std::string::npos) << done.out;
    EXPECT_NE(done.out.find("(incomplete)"), std::string::npos) << done.out;
    EXPECT_GT(Sql(path).number("SELECT count(*) FROM step"), 0);
    const std::string stats = run(folder_, {"stats", path}).out;
    EXPECT_TRUE(stats.find("unfinished") != std::string::npos ||
                stats.find("storage_error") != std::string::npos)
        << stats;
    const ProcessResult repaired = run(folder_, {"check", path, "--repair"});
    EXPECT_EQ(repaired.exit_code, 0) << repaired.out << repaired.err;
    EXPECT_EQ(Sql(path).number("SELECT count(*) FROM run"), 1);
}

TEST_F(Files, MissingValuesAreNull) {
    const std::string path = folder_.file("one.dscope");
    const json document = parse_output(run(folder_, command({"--save", path, "--json"}, 1)));
    EXPECT_EQ(document["cancelled"], false);
    for (const char* key : {"tau", "tokens_per_second"}) {
        EXPECT_TRUE(document["totals"][key].is_null()) << key;
        EXPECT_TRUE(document["prompts"][0][key].is_null()) << key;
    }
    for (const json& phase : document["phases"]) EXPECT_TRUE(phase["median_us"].is_null()) << phase.dump();
    const json stats = json::parse(run(folder_, {"stats", path, "--json"}).out);
    for (const char* key : {"mean_us", "median_us", "min_us", "max_us"})
        EXPECT_TRUE(stats["runs"][0]["statistics"]["step"][key].is_null()) << key;
}

TEST_F(Files, RunPrintsResultAndSummaryTable) {
    const std::string path = folder_.file("said.dscope");
    const ProcessResult alone = run(folder_, command({"--quiet", "--save", path}));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_NE(alone.out.find("ngram and tree chain"), std::string::npos) << alone.out;
    EXPECT_NE(alone.out.find("x as fast as plain decoding on this prompt"), std::string::npos) << alone.out;
    EXPECT_NE(alone.out.find("time of a step: verify "), std::string::npos) << alone.out;
    for (const char* of_detail : {"GB/s", "% of probe", "excluded from the tables", "time to first token"})
        EXPECT_EQ(alone.out.find(of_detail), std::string::npos) << of_detail << alone.out;
    const ProcessResult stats = run(folder_, {"stats", path});
    EXPECT_NE(stats.out.find("x as fast as plain decoding"), std::string::npos) << stats.out;
    const ProcessResult without = run(folder_, command({"--quiet", "--baseline", "0"}));
    EXPECT_NE(without.out.find("tokens per second over one conversation; run --baseline N"),
              std::string::npos)
        << without.out;

    const ProcessResult against = run(folder_, command({"--quiet", "--baseline", "1", "--detail"}));
    ASSERT_EQ(against.exit_code, 0) << against.err;
    EXPECT_NE(against.out.find("x as fast as plain decoding on this prompt"), std::string::npos)
        << against.out;
    EXPECT_NE(against.out.find("(one conversation, so no interval)"), std::string::npos) << against.out;
    for (const char* of_detail : {"GB/s", "% of probe", "time to first token"})
        EXPECT_NE(against.out.find(of_detail), std::string::npos) << of_detail << against.out;
}

/// Parameters: JSON output, signal.
class Interrupted : public Files, public ::testing::WithParamInterface<std::pair<bool, int>> {};

TEST_P(Interrupted, ClosesTheFileAndReturns130) {
    const auto [as_json, signal_number] = GetParam();
    const std::string path = folder_.file("cut.dscope");
    auto words = command({"--save", path}, 60000, 65536);
    if (as_json) words.push_back("--json");
    const Child child = start(folder_, words);
    // Waits until the file contains rounds (written at least every 100 ms) or the program ends.
    const auto recording = [&] {
        if (!std::filesystem::exists(path)) return false;
        sqlite3* db = nullptr;
        sqlite3_stmt* statement = nullptr;
        bool some = false;
        if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK &&
            sqlite3_prepare_v2(db, "SELECT 1 FROM round LIMIT 1", -1, &statement, nullptr) == SQLITE_OK)
            some = sqlite3_step(statement) == SQLITE_ROW;
        sqlite3_finalize(statement);
        sqlite3_close(db);
        return some;
    };
    for (int i = 0; i < 2000 && !recording() && !child.ended(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child.pid, signal_number);
    const ProcessResult done = child.wait();
    EXPECT_EQ(done.exit_code, 130) << done.err;
    const Sql sql(path);
    EXPECT_EQ(sql.text("SELECT ended FROM run"), "cancelled");
    EXPECT_EQ(sql.text("SELECT finish FROM prompt"), "cancelled");
    EXPECT_GT(sql.number("SELECT count(*) FROM round"), 0);
    EXPECT_EQ(run(folder_, {"check", path}).exit_code, 0);
    if (as_json) {
        const json document = json::parse(done.out, nullptr, false);
        ASSERT_FALSE(document.is_discarded());
        EXPECT_EQ(document["prompts"][0]["finish"], "cancelled");
        EXPECT_EQ(document["cancelled"], true);
        EXPECT_EQ(document["planned_prompts"], 1);
    } else {
        EXPECT_NE(done.out.find("cancelled after 0 of 1 prompt"), std::string::npos) << done.out;
    }
}
INSTANTIATE_TEST_SUITE_P(Files, Interrupted,
                         ::testing::Values(std::pair(false, SIGINT), std::pair(true, SIGINT),
                                           std::pair(false, SIGTERM), std::pair(false, SIGHUP)));

/// nohup has SIGHUP ignored, and so it stays.
TEST_F(Files, AnIgnoredHangupDoesNotStopARun) {
    const std::string path = folder_.file("kept.dscope");
    const auto before = signal(SIGHUP, SIG_IGN);
    const Child child = start(folder_, command({"--save", path, "--quiet"}, 60000, 65536));
    signal(SIGHUP, before);
    for (int i = 0; i < 2000 && !std::filesystem::exists(path + "-wal") && !child.ended(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child.pid, SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_FALSE(child.ended());
    kill(child.pid, SIGINT);
    EXPECT_EQ(child.wait().exit_code, 130);
}

TEST_F(Files, TenKilledRunsAreRecovered) {
    int with_steps = 0;
    for (int kill_number = 0; kill_number < 10; ++kill_number) {
        SCOPED_TRACE(kill_number);
        const std::string path = folder_.file("killed" + std::to_string(kill_number) + ".dscope");
        const Child child = start(folder_, command({"--save", path, "--quiet"}, 60000, 65536));
        for (int i = 0; i < 2000 && !std::filesystem::exists(path + "-wal") && !child.ended(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::this_thread::sleep_for(std::chrono::milliseconds(70 * kill_number));
        kill(child.pid, SIGKILL);
        ASSERT_EQ(child.wait().exit_code, 128 + SIGKILL);
        const ProcessResult found = run(folder_, {"check", path});
        EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
        EXPECT_NE(found.out.find("--repair"), std::string::npos) << found.out;
        const ProcessResult repaired = run(folder_, {"check", path, "--repair"});
        EXPECT_EQ(repaired.exit_code, 0) << repaired.out << repaired.err;
        const Sql sql(path);
        // The run had not begun if it was killed before its model was loaded.
        if (sql.number("SELECT count(*) FROM run") == 0) continue;
        EXPECT_EQ(sql.text("SELECT ended FROM run"), "recovered");
        EXPECT_NE(repaired.out.find("recovered"), std::string::npos) << repaired.out;
        with_steps += sql.number("SELECT count(*) FROM step") > 0 ? 1 : 0;
        EXPECT_EQ(run(folder_, {"stats", path}).exit_code, 0);
    }
    EXPECT_GE(with_steps, 3);
}

TEST_F(Files, RecoversADeletedCapture) {
    const std::string path = folder_.file("gone.dscope");
    const Child child = start(folder_, command({"--save", path, "--quiet"}, 60000, 65536));
    for (int i = 0; i < 2000 && !std::filesystem::exists(path + "-wal") && !child.ended(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
    kill(child.pid, SIGINT);
    const ProcessResult done = child.wait();
    EXPECT_EQ(done.exit_code, 1) << done.err;
    EXPECT_NE(done.err.find(path + ".rescued"), std::string::npos) << done.err;
    const ProcessResult checked = run(folder_, {"check", path + ".rescued"});
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
    EXPECT_EQ(Sql(path + ".rescued").text("SELECT ended FROM run"), "cancelled");
}

}  // namespace
}  // namespace draftscope::testing
