#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "capture/queries.h"
#include "file_helpers.h"
#include "random_capture.h"
#include "storage/schema.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

// Files of earlier versions, written by the programs of that time (data/vN.dscope.gz). Later versions added
// columns only, so their files are made of the newest of these.
namespace draftscope {
namespace {

using testing::expect_equal;
using testing::open_plain;
using testing::query;
using testing::ScratchFolder;

void unpack(const std::string& name, const std::string& to) {
    const gzFile file = gzopen((std::string(DS_SOURCE_DIR "/tests/") + name).c_str(), "rb");
    ASSERT_NE(file, nullptr) << name;
    std::ofstream out(to, std::ios::binary);
    char buffer[4096];
    for (int n = 0; (n = gzread(file, buffer, sizeof buffer)) > 0;) out.write(buffer, n);
    gzclose(file);
}

/// Parameter: the version, which is migrated step by step to the current one.
class OlderVersion : public ::testing::TestWithParam<int> {};

TEST_P(OlderVersion, ReadsAndMigratesWithEqualNumbers) {
    const ScratchFolder folder;
    const std::string path = folder.file("old.dscope");
    constexpr int newest_file = 4;
    unpack(fmt::format("unit/storage/data/v{}.dscope.gz", std::min(GetParam(), newest_file)), path);
    if (GetParam() > newest_file) {
        ASSERT_TRUE(is_ok(storage::migrate(open_plain(path), path, storage::migrations(), GetParam())));
        std::filesystem::remove(fmt::format("{}.v{}.bak", path, newest_file));
    }
    const auto old = require(load_capture(path));
    EXPECT_EQ(old->steps.size(), 24u);
    EXPECT_GT(old->gpu_ops.size(), 0u);
    const auto found = require(check_capture(path));
    EXPECT_TRUE(found.findings.empty()) << found.findings[0].what;
    ASSERT_FALSE(found.remarks.empty());
    EXPECT_NE(found.remarks.back().find(fmt::format("schema version {}, read without migration", GetParam())),
              std::string::npos);
    EXPECT_TRUE(export_csv(path, folder.file("csv"), false).ok());
    EXPECT_TRUE(export_nsys(path, folder.file("nsys.sqlite")).ok());
    EXPECT_TRUE(export_chrome(path, folder.file("trace.json"), false).ok());
    const std::string phases = "SELECT run_id, name, n, total, median, exposed, share, bytes FROM v_phase";
    const auto before = query(open_plain(path, SQLITE_OPEN_READONLY), phases);
    ASSERT_FALSE(before.empty());

    ASSERT_TRUE(is_ok(repair_capture(path)));
    const auto report = require(check_capture(path));
    EXPECT_EQ(report.schema_version, capture_schema_version);
    EXPECT_TRUE(report.findings.empty()) << report.findings[0].what;
    EXPECT_EQ(query(open_plain(path), phases), before);
    EXPECT_EQ(query(open_plain(path), "SELECT value FROM meta WHERE key = 'schema_version'"),
              std::vector<std::string>{std::to_string(capture_schema_version)});
    const auto now = require(load_capture(path));
    expect_equal(*old, *now);
    const auto backup = require(load_capture(fmt::format("{}.v{}.bak", path, GetParam())));
    expect_equal(*old, *backup);
    // The tables and views equal those of a new file.
    const std::string fresh = folder.file("new.dscope");
    testing::write_all(fresh, testing::RandomCapture(1, {1, 1, 3, 1, true}).records());
    const std::string names =
        "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY 1, 2";
    EXPECT_EQ(query(open_plain(path), names), query(open_plain(fresh), names));
    const std::string columns =
        "SELECT m.name, p.name, p.type, p.pk, p.\"notnull\", p.dflt_value FROM sqlite_schema m JOIN "
        "pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY m.name, p.cid";
    EXPECT_EQ(query(open_plain(path), columns), query(open_plain(fresh), columns));
}
INSTANTIATE_TEST_SUITE_P(Files, OlderVersion, ::testing::Range(1, capture_schema_version));

/// Hardware counters of version 4 stay in the file, and a note of their run says that they are not shown.
TEST(DroppedTable, StaysInTheFileAndIsNoted) {
    const ScratchFolder folder;
    const std::string path = folder.file("old.dscope");
    unpack("unit/storage/data/v4.dscope.gz", path);
    const auto notes = [](const std::string& file) {
        std::vector<RowId> runs;
        const auto snapshot = require(load_capture(file));
        for (const NoteRow& note : snapshot->notes)
            if (note.text.find("hardware counters") != std::string::npos) runs.push_back(note.run_id);
        return runs;
    };
    EXPECT_EQ(notes(path), std::vector<RowId>{});
    testing::execute(path,
                     "INSERT INTO gpu_counter SELECT run_id, id, 1, 'dram__bytes_read.sum', 5 FROM step "
                     "WHERE run_id = 1; INSERT INTO gpu_counter SELECT run_id, id, 1, "
                     "'dram__bytes_write.sum', 7 FROM step WHERE run_id = 1");
    EXPECT_EQ(notes(path), std::vector<RowId>{1});
    EXPECT_TRUE(require(check_capture(path)).findings.empty());
    ASSERT_TRUE(is_ok(export_csv(path, folder.file("csv"), false)));
    EXPECT_TRUE(std::filesystem::exists(folder.file("csv") + "/gpu_counter.csv"));
    const std::string sum = "SELECT sum(value) FROM gpu_counter";
    const auto before = query(open_plain(path), sum);

    ASSERT_TRUE(is_ok(repair_capture(path)));
    EXPECT_EQ(query(open_plain(path), sum), before);
    EXPECT_EQ(notes(path), std::vector<RowId>{1});
    const std::string merged = folder.file("merged.dscope");
    ASSERT_TRUE(is_ok(merge_captures(merged, {path})));
    EXPECT_EQ(notes(merged), std::vector<RowId>{1});  // the copy says what it lacks
    EXPECT_FALSE(storage::has_table(open_plain(merged), storage::dropped_table));
}

class StepPhases : public ::testing::TestWithParam<int> {};

TEST_P(StepPhases, MatchTheDefinitionOverSpans) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(
        path, testing::RandomCapture(static_cast<std::uint64_t>(GetParam()), {2, 3, 40, 2, true}).records());
    const auto rows = [&](const char* view) {
        return query(open_plain(path),
                     std::string("SELECT run_id, step_id, phase_id, busy_ns, exposed_ns, bytes FROM ") +
                         view + " ORDER BY step_id, phase_id");
    };
    const auto stored = rows("v_step_phase");
    EXPECT_GT(stored.size(), 200u);
    EXPECT_EQ(stored, rows("v_step_phase_by_span"));
}
INSTANTIATE_TEST_SUITE_P(Seeds, StepPhases, ::testing::Range(1, 7));

/// A capture of a published program: its rows, views and checks.
TEST(KeptFiles, CaptureOpens) {
    const ScratchFolder folder;
    const std::string path = folder.file("old.dscope");
    unpack("golden/kept/capture_v6.dscope.gz", path);
    const auto loaded = require(load_capture(path));
    EXPECT_EQ(loaded->steps.size(), 7u);
    EXPECT_EQ(loaded->prompts[0]->generated_tokens, 8);
    EXPECT_TRUE(require(check_capture(path)).findings.empty());
    ASSERT_TRUE(is_ok(repair_capture(path)));
    EXPECT_EQ(require(check_capture(path)).schema_version, capture_schema_version);
    expect_equal(*loaded, *require(load_capture(path)));
}

}  // namespace
}  // namespace draftscope
