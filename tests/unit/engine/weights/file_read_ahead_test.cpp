#include "engine/weights/file_read_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using Bytes = std::span<const std::uint8_t>;

std::shared_ptr<const MappedFile> map(const std::string& path) {
    auto file = require(MappedFile::open(path, "a file of a test"));
    return file;
}

std::vector<Bytes> cut(Bytes bytes, std::size_t range_bytes) {
    std::vector<Bytes> ranges;
    for (std::size_t at = 0; at < bytes.size(); at += range_bytes)
        ranges.push_back(bytes.subspan(at, std::min(range_bytes, bytes.size() - at)));
    return ranges;
}

/// Returns the resident part of the mapping at `data`.
long resident_kb(const std::uint8_t* data) {
    char begin[32];
    std::snprintf(begin, sizeof begin, "%lx-",
                  static_cast<unsigned long>(reinterpret_cast<std::uintptr_t>(data)));
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.rfind(begin, 0) == 0) inside = true;
        if (inside && line.rfind("Rss:", 0) == 0) {
            std::istringstream words(line.substr(4));
            long kb = -1;
            words >> kb;
            return kb;
        }
    }
    return -1;
}

std::uint64_t hash_bytes(Bytes bytes) {
    std::uint64_t sum = 0;
    for (const std::uint8_t byte : bytes) sum = sum * 31 + byte;
    return sum;
}

class FileReadAheadTest : public ::testing::TestWithParam<FileReadAhead::Release> {
  protected:
    /// Creates a file of `bytes` bytes whose values depend on their offsets.
    std::string file(std::size_t bytes) {
        const std::string path = folder_.file("weights");
        std::vector<char> values(bytes);
        for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<char>(i * 7 + i / 4096);
        std::ofstream(path, std::ios::binary).write(values.data(), static_cast<std::streamsize>(bytes));
        return path;
    }
    testing::ScratchFolder folder_;
};

// Ranges that are not page-aligned: a page shared with a later range must stay readable.
TEST_P(FileReadAheadTest, ReleasesFinishedRanges) {
    const auto mapped = map(file((std::size_t{12} << 20) + 123));
    const std::uint64_t before = hash_bytes(mapped->bytes());
    ASSERT_GT(resident_kb(mapped->bytes().data()), 12 * 1024 - 1);
    const auto ranges = cut(mapped->bytes(), 1'000'001);
    {
        FileReadAhead ahead(ranges, GetParam());
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            for (const std::uint8_t byte : ranges[i]) sum = sum * 31 + byte;
            ahead.done(i + 1);
        }
        EXPECT_EQ(sum, before);
    }
    // At most the first and last page of each range remain.
    EXPECT_LE(resident_kb(mapped->bytes().data()), static_cast<long>(ranges.size()) * 2 * 64);
    EXPECT_EQ(hash_bytes(mapped->bytes()), before);
}

TEST_P(FileReadAheadTest, KeepsUnfinishedRanges) {
    const auto mapped = map(file(std::size_t{8} << 20));
    const std::uint64_t sum = hash_bytes(mapped->bytes());
    const long before = resident_kb(mapped->bytes().data());
    FileReadAhead ahead(cut(mapped->bytes(), std::size_t{4} << 20), GetParam());
    ahead.done(0);
    EXPECT_EQ(resident_kb(mapped->bytes().data()), before);
    ahead.done(1);
    EXPECT_LE(resident_kb(mapped->bytes().data()), before - 4 * 1024);
    EXPECT_GE(resident_kb(mapped->bytes().data()), 4 * 1024);
    ahead.done(7);  // more than the number of ranges
    EXPECT_EQ(hash_bytes(mapped->bytes()), sum);
}

// A reader that runs behind finds pages mapped, which costs it no fault and no disk read.
TEST_P(FileReadAheadTest, MapsRangesAheadOfTheReader) {
    const auto mapped = map(file(std::size_t{8} << 20));
    const Bytes bytes = mapped->bytes();
    constexpr int populate_read = 22;
    if (::madvise(const_cast<std::uint8_t*>(bytes.data()), 4096, populate_read) != 0)
        GTEST_SKIP() << "the kernel has no MADV_POPULATE_READ";
    FileReadAhead ahead(cut(bytes, std::size_t{4} << 20), GetParam());
    for (int i = 0; i < 500 && resident_kb(bytes.data()) < 8 * 1024; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GE(resident_kb(bytes.data()), 8 * 1024);
}

// Larger than the window: the thread waits for a reader that never continues.
TEST_P(FileReadAheadTest, StopsWhileWaiting) {
    const std::string path = folder_.file("large");
    {
        std::ofstream file(path, std::ios::binary);
        file.seekp((std::streamoff{600} << 20) - 1);
        file.put(0);  // a hole: uses no disk space
    }
    const auto mapped = map(path);
    for (int i = 0; i < 20; ++i)
        const FileReadAhead ahead(cut(mapped->bytes(), std::size_t{100} << 20), GetParam());
    FileReadAhead nothing({}, GetParam());
    nothing.done(3);
}

INSTANTIATE_TEST_SUITE_P(Release, FileReadAheadTest,
                         ::testing::Values(FileReadAhead::Release::unmap, FileReadAhead::Release::evict));

}  // namespace
}  // namespace draftscope
