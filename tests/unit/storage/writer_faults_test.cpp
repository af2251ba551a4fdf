#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "file_helpers.h"
#include "killed_writer.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::RandomCapture;
using testing::ScratchFolder;
using testing::write_all;

TEST(CaptureWriterPath, MustBeUsable) {
    const ScratchFolder folder;
    const auto refused = [](const std::string& path, const std::string& expected_text) {
        const auto writer = CaptureWriter::create(path, false);
        ASSERT_FALSE(writer.ok()) << path;
        EXPECT_EQ(writer.error().kind, ErrorKind::bad_input);
        EXPECT_NE(writer.error().message.find(expected_text), std::string::npos) << writer.error().message;
    };
    refused("", "no file name");
    refused(folder.file("absent/a.dscope"), "does not exist");
    refused(folder.path(), "not a regular file");
    std::ofstream(folder.file("plain")) << "x";
    refused(folder.file("plain"), "file exists");
    refused(folder.file("plain/a.dscope"), "does not exist");
    refused("/proc/a.dscope", "choose another");  // rejects new files for every user, root included
}

TEST(CaptureWriterPath, OverwriteReplacesTheFileAndItsLogs) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    { auto old = require(CaptureWriter::create(path, false)); }
    for (const char* suffix : {"-wal", "-shm", "-journal"}) std::ofstream(path + suffix) << "rubbish";
    auto writer = require(CaptureWriter::create(path, true));
    const std::vector<Record> records = RandomCapture(1, {1, 1, 3, 1, true}).records();
    for (const Record& record : records) writer->push(record);
    ASSERT_TRUE(writer->close().ok());
    const auto loaded = require(load_capture(path));
    expect_equal(apply_all(records), *loaded);
}

TEST(CaptureWriterPath, DoesNotOverwriteOtherFiles) {
    const ScratchFolder folder;
    const std::string path = folder.file("model.gguf");
    std::ofstream(path) << "GGUF and a lot of weights";
    const auto writer = CaptureWriter::create(path, true);
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().kind, ErrorKind::bad_input);
    EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(CaptureWriterPath, DoesNotOverwriteALiveCapture) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    const std::vector<Record> records = RandomCapture(1, {1, 1, 3, 1, true}).records();
    for (const Record& record : records) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    const auto second = CaptureWriter::create(path, true);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().kind, ErrorKind::bad_input);
    EXPECT_NE(second.error().message.find("open in another program"), std::string::npos);
    ASSERT_TRUE(writer->close().ok());
    const auto loaded = require(load_capture(path));
    expect_equal(apply_all(records), *loaded);
    EXPECT_TRUE(CaptureWriter::create(path, true).ok());
}

TEST(CaptureWriter, KeepsGrowingOutputInTheFileBeforeThePromptEnds) {
    const ScratchFolder folder;
    auto writer = require(CaptureWriter::create(folder.file("a.dscope"), false));
    RunRow run;
    run.id = 1;
    PromptRow prompt;
    prompt.id = 1;
    prompt.run_id = 1;
    writer->push(RunStarted{run, nullptr, {}});
    writer->push(PromptStarted{prompt});
    for (int i = 0; i < 200; ++i) writer->push(PromptProgress{1, "word " + std::to_string(i), i, 5, {}});
    ASSERT_TRUE(writer->flush().ok());
    const auto loaded = require(load_capture(folder.file("a.dscope")));
    EXPECT_EQ(loaded->prompts[0]->output, "word 199");
    EXPECT_EQ(loaded->prompts[0]->generated_tokens, 199);
    // 3 rows of run, anchor and prompt. The text was not rewritten for every token.
    EXPECT_LT(writer->stats().rows, 50);
}

/// Result of a child process that tests a writer without disk space.
enum FullDisk : int { as_expected = 0, no_start, no_error, wrong_kind, no_hint, blocked_or_wrong_end };

int write_until_full(const std::string& path, const std::vector<Record>& first,
                     const std::vector<Record>& more) {
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) return no_start;
    for (const Record& record : first) (*writer)->push(record);
    if (!(*writer)->flush().ok()) return no_start;
    // From here on, no file of this process may grow beyond the log's current size.
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = std::filesystem::file_size(path + "-wal") + 20000;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (const Record& record : more) (*writer)->push(record);
    const Status flushed = (*writer)->flush();
    if (flushed.ok() || (*writer)->stats().error.empty()) return no_error;
    if (flushed.error().kind != ErrorKind::failed) return wrong_kind;
    if (flushed.error().message.find(path) == std::string::npos ||
        flushed.error().message.find("check --repair") == std::string::npos)
        return no_hint;
    for (int i = 0; i < 50; ++i)
        for (const Record& record : more) (*writer)->push(record);
    return (*writer)->close().ok() ? blocked_or_wrong_end : as_expected;
}

TEST(CaptureWriter, FullDiskKeepsWhatWasCommitted) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> all = RandomCapture(8, {1, 2, 2000, 1, false}).records();
    const auto cut = all.begin() + 400;
    const pid_t child = fork();
    if (child == 0) _exit(write_until_full(path, {all.begin(), cut}, {cut, all.end()}));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), as_expected);
    const auto loaded = require(load_capture(path));
    EXPECT_GE(loaded->steps.size(), apply_all({all.begin(), cut}).steps.size());
    EXPECT_LT(loaded->steps.size(), apply_all(all).steps.size());
    const auto report = require(check_capture(path));
    ASSERT_EQ(report.findings.size(), 1u);  // the run has no end
    ASSERT_TRUE(repair_capture(path).ok());
    EXPECT_TRUE(check_capture(path)->findings.empty());
}

class Killed : public ::testing::TestWithParam<int> {};

TEST_P(Killed, KeepsAcknowledgedSteps) {
    const ScratchFolder folder;
    const auto seed = static_cast<std::uint64_t>(GetParam());
    const testing::KillOutcome outcome = testing::kill_writer(folder.file("a.dscope"), seed);
    EXPECT_EQ(outcome.violation, "") << "seed " << seed << ", " << outcome.acknowledged << " acknowledged, "
                                     << outcome.recovered << " in the file";
}
INSTANTIATE_TEST_SUITE_P(Seeds, Killed, ::testing::Range(1, 33));

}  // namespace
}  // namespace draftscope
