#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "base/phase_names.h"
#include "file_helpers.h"
#include "random_capture.h"
#include "storage/schema.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::execute;
using testing::open_plain;
using testing::query;
using testing::RandomCapture;
using testing::ScratchFolder;
using testing::write_all;

std::string findings_text(const CheckReport& report) {
    std::string out;
    for (const CheckFinding& finding : report.findings) out += finding.what + "\n";
    return out;
}

class ValidCapture : public ::testing::Test {
  protected:
    void SetUp() override { write_all(path(), RandomCapture(11, {2, 3, 10, 2, true}).records()); }
    std::string path() const { return folder_.file("a.dscope"); }
    std::string findings() const {
        const auto report = check_capture(path());
        return report.ok() ? findings_text(*report) : "error: " + report.error().message;
    }

    ScratchFolder folder_;
};

TEST_F(ValidCapture, HasTheIdentityTheTablesAndTheViews) {
    const storage::Database db = open_plain(path(), SQLITE_OPEN_READONLY);
    EXPECT_EQ(db.integer("PRAGMA application_id"), capture_application_id);
    EXPECT_EQ(db.integer("PRAGMA user_version"), capture_schema_version);
    EXPECT_EQ(db.text("PRAGMA journal_mode"), "delete");
    for (const auto& [table, since] : storage::table_names())
        EXPECT_EQ(
            query(db, fmt::format("SELECT strict FROM pragma_table_list WHERE type = 'table' AND name = '{}'",
                                  table)),
            std::vector<std::string>(table == storage::dropped_table ? 0 : 1, "1"))
            << table;
    for (const std::string_view view : storage::view_names)
        EXPECT_EQ(
            query(db, fmt::format("SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = '{}'",
                                  view)),
            std::vector<std::string>{"1"})
            << view;
    std::ifstream in(path(), std::ios::binary);
    std::string header(100, '\0');
    in.read(header.data(), 100);
    EXPECT_EQ(header.substr(68, 4), "DSCP");  // file(1) identifies captures by it
}

TEST_F(ValidCapture, StoresThePhaseTable) {
    const storage::Database db = open_plain(path(), SQLITE_OPEN_READONLY);
    std::vector<std::string> expected;
    for (const PhaseRow& row : phase_rows)
        expected.push_back(fmt::format("{}|{}|{}|#{:06X}|{}", row.id, row.name,
                                       row.parent_id == 0 ? "" : std::to_string(row.parent_id), row.rgb,
                                       row.id));
    EXPECT_EQ(query(db, "SELECT id, name, parent_id, colour, sort FROM phase ORDER BY id"), expected);
}

/// Returns the columns that docs/FORMATS.md names for a table: the first cells of its rows, or the words in
/// backticks of one sentence, without those in parentheses.
std::vector<std::string> documented_columns(const std::string& text, const std::string& table) {
    const std::size_t start = text.find("\n**" + table + "**");
    if (start == std::string::npos) return {};
    std::string section = text.substr(start + 1, text.find("\n**", start + 1) - start - 1);
    section = section.substr(0, section.find("\n#"));
    std::vector<std::string> out;
    const auto add_each = [&](const std::string& words, const std::regex& word, int group) {
        for (std::sregex_iterator it(words.begin(), words.end(), word), end; it != end; ++it)
            out.push_back(it->str(group));
    };
    const std::string heading = "\n| column | meaning |\n| --- | --- |";
    if (const std::size_t rows = section.find(heading); rows != std::string::npos) {
        std::istringstream lines(section.substr(rows + heading.size() + 1));
        for (std::string line; std::getline(lines, line) && line.starts_with("| ");)
            add_each(line.substr(0, line.find(" |", 1)), std::regex("\\w+"), 0);
        return out;
    }
    section = std::regex_replace(section, std::regex("\\([^)]*\\)"), "");
    section = section.substr(section.find('`'));
    std::smatch end;
    if (std::regex_search(section, end, std::regex("\\.(\\s|$)"))) section = end.prefix();
    add_each(section, std::regex("`(\\w+)`"), 1);
    return out;
}

TEST_F(ValidCapture, MatchesTheFormatDocument) {
    std::ifstream in(DS_SOURCE_DIR "/docs/FORMATS.md");
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const storage::Database db = open_plain(path(), SQLITE_OPEN_READONLY);
    for (const std::string& table : query(db, "SELECT name FROM sqlite_schema WHERE type = 'table'"))
        EXPECT_EQ(documented_columns(text, table),
                  query(db, fmt::format("SELECT name FROM pragma_table_info('{}')", table)))
            << table;
    for (const std::string_view view : storage::view_names)
        EXPECT_NE(text.find(view), std::string::npos) << view;
    const std::size_t start = text.find("```sql\n") + 7, end = text.find("```", start);
    ASSERT_LT(end, text.size());
    EXPECT_EQ(db.exec(text.substr(start, end - start)), SQLITE_OK) << db.message();
}

TEST_F(ValidCapture, ChecksClean) {
    const auto report = require(check_capture(path()));
    EXPECT_EQ(findings_text(report), "");
    EXPECT_EQ(report.schema_version, capture_schema_version);
    EXPECT_EQ(report.row_counts.size(), storage::table_names().size() - 1);  // none was dropped
    std::int64_t steps = 0;
    for (const auto& [table, rows] : report.row_counts)
        if (table == "step") steps = rows;
    EXPECT_EQ(steps, 20);
    ASSERT_FALSE(report.remarks.empty());
    EXPECT_NE(report.remarks[0].find("span_ring_full"), std::string::npos);
}

struct Fault {
    const char* sql;
    const char* expected_text;
};

class Faults : public ValidCapture, public ::testing::WithParamInterface<Fault> {};

TEST_P(Faults, AreReported) {
    execute(path(), GetParam().sql);
    EXPECT_NE(findings().find(GetParam().expected_text), std::string::npos) << findings();
}
INSTANTIATE_TEST_SUITE_P(
    Each, Faults,
    ::testing::Values(
        Fault{"UPDATE run SET ended = NULL WHERE id = 2", "run 2 (run 2) has no end"},
        Fault{"UPDATE step SET end_ns = start_ns - 1 WHERE id = 3", "step 3 lasts -1 ns"},
        Fault{"UPDATE span SET end_ns = start_ns - 7 WHERE id = 9", "span 9 lasts -7 ns"},
        Fault{"UPDATE span SET end_ns = end_ns + 90000000 WHERE id = 9", "span 9 on the critical lane"},
        Fault{"UPDATE span SET step_id = 99999 WHERE id = 9", "refers to a row of step"},
        Fault{"UPDATE node SET parent = node + 1 WHERE round_id = 2 AND node = 0", "has parent 1"},
        Fault{"UPDATE node SET depth = depth + 1 WHERE node = 1", "has depth 2 under depth 0"},
        Fault{"UPDATE round SET tree_nodes = 77 WHERE id = 4", "round 4 records 77 tree nodes"},
        Fault{"UPDATE round SET committed = committed + 3 WHERE id = 4", "round 4 drafted"},
        Fault{"DELETE FROM token WHERE round_id = 5", "round 5 committed"},
        Fault{"UPDATE prompt SET generated_tokens = 999 WHERE id = 1", "prompt 1 generated 999"},
        Fault{"INSERT INTO token SELECT * FROM token LIMIT 1", "at position 0"},
        Fault{"UPDATE head_eval SET covered = 99", "more of this kind"},
        Fault{"DELETE FROM clock_anchor WHERE run_id = 1", "run 1 has no clock anchor"}));

TEST_F(ValidCapture, OtherFilesAreRejectedWithAReason) {
    const auto expect_refused = [&](const std::string& file, const std::string& expected_text) {
        for (const Status& status :
             {load_capture(file).ok() ? Status() : Status(load_capture(file).error()),
              check_capture(file).ok() ? Status() : Status(check_capture(file).error()), repair_capture(file),
              probe_capture(file), export_csv(file, folder_.file("csv"), false)}) {
            ASSERT_FALSE(status.ok()) << file;
            EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
            EXPECT_NE(status.error().message.find(expected_text), std::string::npos)
                << status.error().message;
            EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
        }
    };
    expect_refused(folder_.file("absent.dscope"), "no such file");
    expect_refused(folder_.path(), "not a regular file");
    std::ofstream(folder_.file("text.dscope"))
        << "this is a text, long enough to be taken for something else " << std::string(2000, 'x');
    expect_refused(folder_.file("text.dscope"), "not a Draftscope capture (not an SQLite file)");
    std::ofstream(folder_.file("empty.dscope")) << "";
    expect_refused(folder_.file("empty.dscope"), "not a Draftscope capture");
    storage::Database other =
        open_plain(folder_.file("other.db"), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    ASSERT_EQ(other.exec("CREATE TABLE a(b)"), SQLITE_OK);
    expect_refused(folder_.file("other.db"), "application id 0x00000000");
    execute(path(), "PRAGMA user_version = 99");
    expect_refused(path(),
                   "schema version 99, this program reads up to " + std::to_string(capture_schema_version));
    execute(path(), "PRAGMA user_version = 1; DROP TABLE note");
    expect_refused(path(), "table note is missing");
}

TEST_F(ValidCapture, TruncationIsReported) {
    const auto size = std::filesystem::file_size(path());
    for (const double part : {0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999}) {
        const std::string cut = folder_.file("cut.dscope");
        std::filesystem::copy_file(path(), cut, std::filesystem::copy_options::overwrite_existing);
        std::filesystem::resize_file(cut, static_cast<std::uintmax_t>(static_cast<double>(size) * part));
        const auto loaded = load_capture(cut);
        EXPECT_FALSE(loaded.ok()) << part;
        if (!loaded.ok()) {
            EXPECT_EQ(loaded.error().kind, ErrorKind::bad_input);
        }
        const auto report = check_capture(cut);
        if (report.ok())
            EXPECT_NE(findings_text(*report), "") << part;
        else
            EXPECT_EQ(report.error().kind, ErrorKind::bad_input);
    }
}

TEST_F(ValidCapture, RandomDamageNeverCrashesTheReader) {
    const auto size = std::filesystem::file_size(path());
    Rng rng(77);
    for (int i = 0; i < 60; ++i) {
        const std::string bad = folder_.file("bad.dscope");
        std::filesystem::copy_file(path(), bad, std::filesystem::copy_options::overwrite_existing);
        {
            std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
            for (int k = 0; k < 8; ++k) {
                file.seekp(
                    static_cast<std::streamoff>(100 + rng.below(static_cast<std::uint32_t>(size - 100))));
                file.put(static_cast<char>(rng.below(256)));
            }
        }
        const auto loaded = load_capture(bad);
        if (!loaded.ok()) {
            EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos);
        }
        static_cast<void>(check_capture(bad));
    }
}

TEST_F(ValidCapture, ImpossibleValuesAreNamed) {
    const auto expect_refused = [&](const std::string& sql, const std::string& expected_text) {
        const std::string bad = folder_.file("bad.dscope");
        std::filesystem::copy_file(path(), bad, std::filesystem::copy_options::overwrite_existing);
        execute(bad, sql);
        const auto loaded = load_capture(bad);
        ASSERT_FALSE(loaded.ok()) << sql;
        EXPECT_NE(loaded.error().message.find(expected_text), std::string::npos) << loaded.error().message;
    };
    expect_refused("UPDATE span SET phase_id = 99 WHERE id = 5", "column phase_id holds 99");
    expect_refused("UPDATE round SET ordinal = 1 << 40 WHERE id = 5", "column ordinal holds 1099511627776");
    expect_refused("UPDATE node SET node = 1 << 30 WHERE round_id = 2", "column node holds");
    expect_refused("UPDATE node SET node = node + 1 WHERE round_id = 2", "at position 0");
    expect_refused("UPDATE node SET round_id = 999 WHERE round_id = 2", "round 2, which has 0 nodes");
    expect_refused("UPDATE token SET round_id = 999 WHERE round_id = 2",
                   "table token has rows without a preceding parent row");
    expect_refused("UPDATE round SET step_id = 999 WHERE id = 2",
                   "table round has rows without a preceding parent row");
    expect_refused("UPDATE vocab SET token_id = 1 << 28 WHERE token_id = 49", "column token_id holds");
    expect_refused("PRAGMA ignore_check_constraints = 1; UPDATE token SET source = 'magic'", "holds magic");
}

constexpr int now = capture_schema_version;

TEST(Migration, MigratesAndKeepsABackup) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    write_all(path, RandomCapture(1, {1, 1, 3, 1, true}).records());
    {
        const storage::Database db = open_plain(path);
        const std::vector<storage::Migration> steps = {
            {now + 1, "UPDATE run SET name = name || ' after'"},
            {now, "ALTER TABLE run ADD COLUMN extra TEXT; UPDATE run SET extra = 'first'"}};
        ASSERT_TRUE(is_ok(storage::migrate(db, path, steps, now + 2)));
        EXPECT_EQ(query(db, "SELECT extra, name FROM run"), std::vector<std::string>{"first|run 1 after"});
        EXPECT_EQ(db.integer("PRAGMA user_version"), now + 2);
    }
    const auto backup = require(load_capture(fmt::format("{}.v{}.bak", path, now)));
    EXPECT_EQ(backup->runs[0].name, "run 1");
}

TEST(Migration, FailureLeavesTheFileUnchanged) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    write_all(path, RandomCapture(1, {1, 1, 3, 1, true}).records());
    const storage::Database db = open_plain(path);
    const Status done = storage::migrate(
        db, path, {{now, "UPDATE run SET name = 'x'"}, {now + 1, "UPDATE nowhere SET a = 1"}}, now + 2);
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find(fmt::format("from schema version {} to {}", now + 1, now + 2)),
              std::string::npos)
        << done.error().message;
    EXPECT_EQ(db.integer("PRAGMA user_version"), now);
    EXPECT_EQ(query(db, "SELECT name FROM run"), std::vector<std::string>{"run 1"});
    const Status again = storage::migrate(db, path, {}, now + 2);
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("exists already"), std::string::npos);
}

TEST(Migration, RejectsNewerAndKeepsCurrentFiles) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    write_all(path, RandomCapture(1, {1, 1, 3, 1, true}).records());
    const storage::Database db = open_plain(path);
    EXPECT_TRUE(storage::migrate(db, path, storage::migrations(), capture_schema_version).ok());
    EXPECT_FALSE(std::filesystem::exists(fmt::format("{}.v{}.bak", path, now)));
    const Status newer = storage::migrate(db, path, {}, 0);
    ASSERT_FALSE(newer.ok());
    EXPECT_EQ(newer.error().kind, ErrorKind::bad_input);
}

TEST(Repair, RecomputesStepPhases) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    write_all(path, RandomCapture(1, {1, 1, 30, 1, true}).records());
    testing::execute(path, "UPDATE step_phase SET busy_ns = busy_ns + 1 WHERE step_id = 7 AND phase_id = 13");
    const auto found = require(check_capture(path));
    ASSERT_EQ(found.findings.size(), 1u);
    EXPECT_NE(found.findings[0].what.find("step 7: table step_phase"), std::string::npos);
    ASSERT_TRUE(repair_capture(path).ok());
    EXPECT_TRUE(check_capture(path)->findings.empty());
}

TEST(Repair, RejectsALiveRun) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    const std::vector<Record> records = RandomCapture(2, {1, 1, 5, 1, false}).records();
    for (const Record& record : records) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    const Status repaired = repair_capture(path);
    ASSERT_FALSE(repaired.ok());
    EXPECT_EQ(repaired.error().kind, ErrorKind::failed);
    EXPECT_NE(repaired.error().message.find("in use by another program"), std::string::npos);
    writer->push(RunEnded{1, RunEnd::ok, 99999, {}});
    EXPECT_TRUE(writer->close().ok());
    const auto loaded = require(load_capture(path));
    EXPECT_EQ(loaded->runs[0].ended, RunEnd::ok);
}

}  // namespace
}  // namespace draftscope
