#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

/// Captures on file systems without shared memory or locks and on read-only media, and two writers of a name.
namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::open_plain;
using testing::RandomCapture;
using testing::ScratchFolder;

std::vector<Record> some_records() {
    return RandomCapture(1, {1, 1, 3, 1, true}).records();
}

enum class Refuses { shared_memory_locks, shared_memory, locks };

/// Makes SQLite's default layer of file access refuse what some file systems refuse.
class RefusingFiles {
  public:
    explicit RefusingFiles(Refuses what) {
        refuses = what;
        methods.clear();
        real = sqlite3_vfs_find(nullptr);
        layer_ = *real;
        layer_.zName = "refusing";
        layer_.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
            const int code = real->xOpen(real, name, file, flags, out);
            if (code == SQLITE_OK && file->pMethods != nullptr)
                file->pMethods = with_refusals(file->pMethods);
            return code;
        };
        sqlite3_vfs_register(&layer_, 1);
    }
    ~RefusingFiles() {
        sqlite3_vfs_unregister(&layer_);
        sqlite3_vfs_register(real, 1);
    }
    RefusingFiles(const RefusingFiles&) = delete;
    RefusingFiles& operator=(const RefusingFiles&) = delete;

  private:
    static const sqlite3_io_methods* with_refusals(const sqlite3_io_methods* from) {
        sqlite3_io_methods& own = methods.try_emplace(from, *from).first->second;
        if (refuses == Refuses::shared_memory_locks)
            own.xShmLock = [](sqlite3_file*, int, int, int) { return SQLITE_IOERR_SHMLOCK; };
        if (refuses == Refuses::shared_memory)
            own.xShmMap = [](sqlite3_file*, int, int, int, void volatile**) { return SQLITE_IOERR_SHMMAP; };
        if (refuses == Refuses::locks) own.xLock = [](sqlite3_file*, int) { return SQLITE_IOERR_LOCK; };
        return &own;
    }
    static inline Refuses refuses;
    static inline sqlite3_vfs* real;
    static inline std::map<const sqlite3_io_methods*, sqlite3_io_methods> methods;
    sqlite3_vfs layer_;
};

class PoorFileSystem : public ::testing::TestWithParam<Refuses> {};

TEST_P(PoorFileSystem, HoldsACompleteCaptureAndSaysSo) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = some_records();
    {
        const RefusingFiles refusing(GetParam());
        auto writer = require(CaptureWriter::create(path, false));
        ASSERT_EQ(writer->notes().size(), 1u);
        EXPECT_NE(writer->notes()[0].find("its file system has no "), std::string::npos)
            << writer->notes()[0];
        for (const Record& record : records) writer->push(record);
        ASSERT_TRUE(is_ok(writer->flush()));
        if (GetParam() != Refuses::locks) {
            EXPECT_FALSE(CaptureWriter::create(path, true).ok()) << "two writers";
            EXPECT_FALSE(repair_capture(path).ok());
        }
        ASSERT_TRUE(is_ok(writer->close()));
        expect_equal(apply_all(records), *require(load_capture(path)));
    }
    for (const char* suffix : {"-wal", "-shm", "-journal"})
        EXPECT_FALSE(std::filesystem::exists(path + suffix)) << suffix;
    expect_equal(apply_all(records), *require(load_capture(path)));
    EXPECT_TRUE(require(check_capture(path)).findings.empty());
}
INSTANTIATE_TEST_SUITE_P(Places, PoorFileSystem,
                         ::testing::Values(Refuses::shared_memory_locks, Refuses::shared_memory,
                                           Refuses::locks));

/// A link in the place of the shared memory is refused as a read-only medium refuses its file.
TEST(KilledCapture, IsReadWithItsLogWhereNothingCanBeCreated) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope"), copy = folder.file("copy.dscope");
    const std::vector<Record> records = some_records();
    auto writer = require(CaptureWriter::create(path, false));
    for (const Record& record : records) writer->push(record);
    ASSERT_TRUE(is_ok(writer->flush()));
    for (const char* suffix : {"", "-wal"}) std::filesystem::copy_file(path + suffix, copy + suffix);
    ASSERT_TRUE(is_ok(writer->close()));
    ASSERT_GT(std::filesystem::file_size(copy + "-wal"), 0u);
    std::filesystem::create_symlink("nowhere", copy + "-shm");
    const auto loaded = require(load_capture(copy));
    EXPECT_EQ(loaded->steps.size(), apply_all(records).steps.size());
    EXPECT_TRUE(check_capture(copy).ok());
    EXPECT_TRUE(export_csv(copy, folder.file("csv"), false).ok());
    std::filesystem::resize_file(copy + "-wal", 0);
    EXPECT_TRUE(check_capture(copy).ok());
}

/// Pairs of processes write the same name at once. One file is complete, and the loser was told.
TEST(TwoWriters, OfOneNameLoseNothing) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = some_records();
    const Snapshot expected = apply_all(records);
    testing::write_all(path, records);
    enum Outcome : int { complete, refused_in_use, refused_otherwise, incomplete };
    const auto write = [&] {
        auto writer = CaptureWriter::create(path, true);
        if (!writer.ok())
            return writer.error().message.find("open in another program") != std::string::npos
                       ? refused_in_use
                       : refused_otherwise;
        for (const Record& record : records) (*writer)->push(record);
        return (*writer)->close().ok() ? complete : incomplete;
    };
    for (int pair = 0; pair < 20; ++pair) {
        pid_t children[2];
        for (pid_t& child : children) {
            child = fork();
            if (child == 0) _exit(write());
        }
        int completed = 0;
        for (const pid_t child : children) {
            int status = 0;
            waitpid(child, &status, 0);
            ASSERT_TRUE(WIFEXITED(status));
            EXPECT_LE(WEXITSTATUS(status), refused_in_use) << pair;
            completed += WEXITSTATUS(status) == complete ? 1 : 0;
        }
        EXPECT_GE(completed, 1) << pair;
        expect_equal(expected, *require(load_capture(path)));
        EXPECT_FALSE(std::filesystem::exists(path + ".rescued"));
    }
}

TEST(RemoveFile, LeavesAnothersFile) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    auto writer = require(CaptureWriter::create(path, false));
    std::filesystem::rename(path, folder.file("moved.dscope"));
    testing::write_text(path, "another's");
    EXPECT_FALSE(writer->owns_name());
    EXPECT_FALSE(writer->close().ok());
    writer->remove_file();
    EXPECT_EQ(testing::read_text(path), "another's");
}

}  // namespace
}  // namespace draftscope
