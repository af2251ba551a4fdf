#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

// Tests captures that lost something: parts of their log, their name, or write permission.
namespace draftscope {
namespace {

namespace fs = std::filesystem;
using testing::apply_all;
using testing::expect_equal;
using testing::RandomCapture;
using testing::ScratchFolder;

int in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Leaves a capture as a killed program would, with all data in its log.
void leave_log(const std::string& path, const std::vector<Record>& records) {
    const int code = in_child([&]() -> int {
        auto writer = CaptureWriter::create(path, false);
        if (!writer.ok()) return 1;
        for (std::size_t i = 0; i < records.size(); ++i) {
            (*writer)->push(records[i]);
            if (i % 11 == 10 && !(*writer)->flush().ok()) return 2;
        }
        if (!(*writer)->flush().ok()) return 3;
        kill(getpid(), SIGKILL);
        return 4;
    });
    ASSERT_EQ(code, 128 + SIGKILL);
    ASSERT_GT(fs::file_size(path + "-wal"), 100'000u);
}

/// Expects `part` to equal `whole` at an earlier moment: its first steps, each with all its rows.
void expect_prefix(const Snapshot& part, const Snapshot& whole) {
    ASSERT_LE(part.steps.size(), whole.steps.size());
    for (std::size_t i = 0; i < part.steps.size(); ++i) {
        const StepEntry& a = part.steps[i];
        const StepEntry& b = whole.steps[i];
        ASSERT_EQ(a.row.id, b.row.id);
        ASSERT_EQ(a.row.end_ns, b.row.end_ns);
        ASSERT_EQ(a.spans.count, b.spans.count);
        ASSERT_EQ(a.rounds.count, b.rounds.count);
        for (std::uint32_t r = 0; r < a.rounds.count; ++r) {
            const RoundEntry& ra = part.rounds[a.rounds.first + r];
            const RoundEntry& rb = whole.rounds[b.rounds.first + r];
            ASSERT_EQ(ra.nodes.count, rb.nodes.count);
            ASSERT_EQ(ra.tokens.count, rb.tokens.count);
            ASSERT_EQ(ra.head_evals.count, rb.head_evals.count);
            for (std::uint32_t n = 0; n < ra.nodes.count; ++n)
                ASSERT_EQ(part.nodes[ra.nodes.first + n].token_id, whole.nodes[rb.nodes.first + n].token_id);
        }
    }
}

TEST(CutLog, LeavesAConsistentPrefix) {
    const ScratchFolder folder;
    const std::string original = folder.file("whole.dscope");
    // Few enough that the log is not merged in between.
    const std::vector<Record> records = RandomCapture(3, {1, 2, 80, 1, false}).records();
    leave_log(original, records);
    const Snapshot whole = apply_all(records);
    const auto log_bytes = static_cast<std::uint32_t>(fs::file_size(original + "-wal"));
    std::size_t min_steps = whole.steps.size(), max_steps = 0;
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        SCOPED_TRACE(seed);
        Rng rng(seed);
        const std::string path = folder.file("cut.dscope");
        for (const char* suffix : {"", "-wal"})
            fs::copy_file(original + suffix, path + suffix, fs::copy_options::overwrite_existing);
        const std::uint32_t at = rng.below(log_bytes);
        if (seed % 3 == 0) {  // Corrupts a page instead, which invalidates the rest of the log.
            std::fstream log(path + "-wal", std::ios::in | std::ios::out | std::ios::binary);
            log.seekp(at);
            log.put('\x5a').put('\xa5');
        } else {
            fs::resize_file(path + "-wal", at);
        }
        const auto left = require(load_capture(path));
        expect_prefix(*left, whole);
        min_steps = std::min(min_steps, left->steps.size());
        max_steps = std::max(max_steps, left->steps.size());
        const auto report = require(check_capture(path));
        ASSERT_EQ(report.findings.size(), 1u);
        const std::string expected_text = left->runs.empty() ? "indexes are missing" : "has no end";
        EXPECT_NE(report.findings[0].what.find(expected_text), std::string::npos) << report.findings[0].what;
        ASSERT_TRUE(repair_capture(path).ok());
        const auto repaired = require(check_capture(path));
        EXPECT_TRUE(repaired.findings.empty()) << repaired.findings[0].what;
        const auto after = require(load_capture(path));
        EXPECT_EQ(after->steps.size(), left->steps.size());
        for (const RunRow& run : after->runs) EXPECT_EQ(run.ended, RunEnd::recovered);
    }
    EXPECT_LT(min_steps, whole.steps.size() / 4);  // some cuts were early and some late
    EXPECT_GT(max_steps, whole.steps.size() / 2);
}

TEST(DeletedFile, IsReportedAndRescued) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(4, {1, 2, 60, 1, true}).records();
    auto writer = require(CaptureWriter::create(path, false));
    const std::size_t half = records.size() / 2;
    for (std::size_t i = 0; i < half; ++i) writer->push(records[i]);
    ASSERT_TRUE(writer->flush().ok());
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix);
    for (std::size_t i = half; i < records.size(); ++i) writer->push(records[i]);

    const Status flushed = writer->flush();
    ASSERT_FALSE(flushed.ok());
    EXPECT_NE(flushed.error().message.find("deleted or replaced"), std::string::npos)
        << flushed.error().message;
    EXPECT_NE(flushed.error().message.find("save a copy"), std::string::npos) << flushed.error().message;
    const Status closed = writer->close();
    ASSERT_FALSE(closed.ok());
    EXPECT_NE(closed.error().message.find(path + ".rescued"), std::string::npos) << closed.error().message;
    const auto rescued = require(load_capture(path + ".rescued"));
    expect_equal(apply_all(records), *rescued);
    const auto report = require(check_capture(path + ".rescued"));
    EXPECT_TRUE(report.findings.empty()) << report.findings[0].what;
    EXPECT_FALSE(fs::exists(path));
}

TEST(DeletedFile, AReplacementIsNotTouched) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    std::ofstream(folder.file("other")) << "something else";
    fs::rename(folder.file("other"), path);
    const std::vector<Record> records = RandomCapture(4, {1, 1, 9, 1, true}).records();
    for (const Record& record : records) writer->push(record);
    EXPECT_FALSE(writer->close().ok());
    EXPECT_EQ(fs::file_size(path), 14u);
    const auto rescued = require(load_capture(path + ".rescued"));
    expect_equal(apply_all(records), *rescued);
}

/// The end of a recording also needs space, for the indexes.
TEST(FullDisk, FullAtTheEndLosesNothing) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(8, {1, 2, 300, 1, true}).records();
    const int code = in_child([&]() -> int {
        auto writer = CaptureWriter::create(path, false);
        if (!writer.ok()) return 1;
        for (const Record& record : records) (*writer)->push(record);
        if (!(*writer)->flush().ok()) return 2;
        signal(SIGXFSZ, SIG_IGN);
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = fs::file_size(path + "-wal") + 8192;
        setrlimit(RLIMIT_FSIZE, &limit);
        const Status closed = (*writer)->close();
        if (closed.ok()) return 3;
        return closed.error().message.find("building the indexes") == std::string::npos ? 4 : 0;
    });
    ASSERT_EQ(code, 0);
    const auto report = require(check_capture(path));
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_NE(report.findings[0].what.find("indexes are missing (i_prompt_run"), std::string::npos)
        << report.findings[0].what;
    ASSERT_TRUE(repair_capture(path).ok());
    EXPECT_TRUE(check_capture(path)->findings.empty());
    const auto loaded = require(load_capture(path));
    expect_equal(apply_all(records), *loaded);
}

/// Makes a vocabulary of usual size. It takes 1.6 MB in the file and is written with the run.
std::shared_ptr<const Vocab> large_vocab() {
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 1;
    for (int i = 0; i < 50'000; ++i) {
        VocabRow row;
        row.vocab_id = 1;
        row.token_id = i;
        row.bytes = row.text = "token " + std::to_string(i);
        vocab->rows.push_back(row);
    }
    return vocab;
}

struct TinyDisk {
    int kilobytes;
    bool vocabulary_fits, all_fits;
};

/// Records on a separate disk and copies the capture with its log to `out`. The disk is an in-memory file
/// system that only this process sees.
int record_on_tiny_disk(int kilobytes, const std::vector<Record>& records, const std::string& mount_point,
                        const std::string& out) {
    constexpr int cannot_mount = 77;
    if (unshare(CLONE_NEWNS) != 0) return cannot_mount;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return cannot_mount;
    const std::string options = fmt::format("size={}k", kilobytes);
    if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, options.c_str()) != 0) return cannot_mount;
    const std::string path = mount_point + "/a.dscope";
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) return 1;
    for (const Record& record : records) (*writer)->push(record);
    const bool closed = (*writer)->close().ok();
    const WriterStats stats = (*writer)->stats();
    if (closed != (stats.error.empty() && stats.lost_vocabulary == 0)) return 2;
    if (fs::exists(path + "-reserve")) return 3;
    for (const char* suffix : {"", "-wal"})
        if (fs::exists(path + suffix)) fs::copy_file(path + suffix, out + suffix);
    return closed ? 0 : 100;
}

class FullTmpfs : public ::testing::TestWithParam<TinyDisk> {};

TEST_P(FullTmpfs, KeepsCompleteStepsAndReportsLosses) {
    const TinyDisk disk = GetParam();
    const ScratchFolder folder;
    const std::string path = folder.file("copy.dscope");
    std::vector<Record> records = RandomCapture(8, {1, 2, 300, 1, true}).records();
    for (Record& record : records)
        if (auto* started = std::get_if<RunStarted>(&record)) started->vocab = large_vocab();
    fs::create_directory(folder.file("disk"));
    const int code =
        in_child([&] { return record_on_tiny_disk(disk.kilobytes, records, folder.file("disk"), path); });
    if (code == 77) GTEST_SKIP() << "no right to mount a file system";
    ASSERT_EQ(code, disk.all_fits && disk.vocabulary_fits ? 0 : 100);

    const auto loaded = require(load_capture(path));
    const Snapshot whole = apply_all(records);
    expect_prefix(*loaded, whole);
    EXPECT_GT(loaded->steps.size(), 0u);
    EXPECT_EQ(loaded->steps.size() == whole.steps.size(), disk.all_fits);
    // The run records how it ended and what is missing.
    ASSERT_EQ(loaded->runs.size(), 1u);
    EXPECT_EQ(loaded->runs[0].ended, whole.runs[0].ended);
    const auto lost = [&](const std::string& kind) {
        const auto rows =
            testing::query(testing::open_plain(path), "SELECT count FROM loss WHERE kind = '" + kind + "'");
        return rows.empty() ? 0 : std::stoi(rows[0]);
    };
    EXPECT_EQ(lost("vocabulary"), disk.vocabulary_fits ? 0 : 50'000);
    EXPECT_EQ(lost("storage_error") > 0, !disk.all_fits);
    const auto report = require(check_capture(path));
    std::string remarks;
    for (const std::string& remark : report.remarks) remarks += remark + "\n";
    EXPECT_EQ(remarks.find("vocabulary (") != std::string::npos, !disk.vocabulary_fits) << remarks;
    EXPECT_EQ(remarks.find("storage_error (") != std::string::npos, !disk.all_fits) << remarks;
    for (const CheckFinding& finding : report.findings)
        EXPECT_NE(finding.what.find("indexes are missing"), std::string::npos) << finding.what;
    ASSERT_TRUE(repair_capture(path).ok());
    EXPECT_TRUE(check_capture(path)->findings.empty());
}
INSTANTIATE_TEST_SUITE_P(Sizes, FullTmpfs,
                         ::testing::Values(TinyDisk{700, false, false}, TinyDisk{1500, false, true},
                                           TinyDisk{2600, true, false}, TinyDisk{16000, true, true}),
                         [](const auto& one) { return std::to_string(one.param.kilobytes) + "k"; });

/// Runs `work` without administrator rights, because nothing is read-only for an administrator.
int as_ordinary_user(const std::function<int()>& work) {
    return in_child([&]() -> int {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 99;
        return work();
    });
}

class ReadOnlyFolder : public ::testing::TestWithParam<bool> {};

TEST_P(ReadOnlyFolder, OpensAndRepairReportsTheRemedy) {
    const bool killed = GetParam();
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(5, {1, 2, 80, 1, !killed}).records();
    if (killed)
        leave_log(path, records);
    else
        testing::write_all(path, records);
    for (const auto& entry : fs::directory_iterator(folder.path())) chmod(entry.path().c_str(), 0644);
    chmod(folder.path().c_str(), 0555);
    const std::size_t steps = apply_all(records).steps.size();
    const int code = as_ordinary_user([&]() -> int {
        const auto loaded = load_capture(path);
        if (!loaded.ok() || (*loaded)->steps.size() != steps) return 1;
        if (!check_capture(path).ok()) return 2;
        const Status repaired = repair_capture(path);
        if (repaired.ok() || repaired.error().kind != ErrorKind::bad_input) return 3;
        if (repaired.error().message.find("read-only") == std::string::npos) return 4;
        const auto noted = add_round_note(path, {1, 1, 0, "bookmark: here"});
        if (noted.ok() ||
            noted.error().message.find(killed ? "was killed" : "is read-only") == std::string::npos)
            return 7;
        const auto writer = CaptureWriter::create(folder.file("b.dscope"), false);
        if (writer.ok() || writer.error().kind != ErrorKind::bad_input) return 5;
        return writer.error().message.find("not writable") == std::string::npos ? 6 : 0;
    });
    chmod(folder.path().c_str(), 0755);
    EXPECT_EQ(code, 0);
}
INSTANTIATE_TEST_SUITE_P(EndedAndKilled, ReadOnlyFolder, ::testing::Bool());

}  // namespace
}  // namespace draftscope
