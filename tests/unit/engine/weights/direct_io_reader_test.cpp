#include "engine/weights/direct_io_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;
using Groups = std::vector<DirectIoReader::Group>;

constexpr int through_cache = 0;

std::shared_ptr<const MappedFile> map(const std::string& path) {
    auto file = require(MappedFile::open(path, "a file of a test"));
    return file;
}

class DirectIoReaderTest : public ::testing::Test {
  protected:
    std::shared_ptr<const MappedFile> file(const std::string& name, std::size_t bytes) {
        std::vector<char> values(bytes);
        for (char& value : values) value = static_cast<char>(rng_.below(256));
        std::ofstream(folder_.file(name), std::ios::binary)
            .write(values.data(), static_cast<std::streamsize>(bytes));
        return map(folder_.file(name));
    }
    std::unique_ptr<DirectIoReader> open(const std::shared_ptr<const MappedFile>& file, Groups groups,
                                         int flags = through_cache,
                                         std::size_t window = DirectIoReader::default_window) {
        const MappedFile* const files[] = {file.get()};
        return DirectIoReader::open(files, std::move(groups), flags, window);
    }
    static void expect_group(DirectIoReader& reader, const DirectIoReader::Group& group) {
        const auto got = require(reader.next());
        ASSERT_EQ(got.size(), group.size());
        for (std::size_t i = 0; i < group.size(); ++i) {
            EXPECT_TRUE(std::ranges::equal(got[i], group[i]));
            EXPECT_NE(got[i].data(), group[i].data());
        }
    }
    Rng rng_{11};
    testing::ScratchFolder folder_;
};

TEST_F(DirectIoReaderTest, ReadsUnalignedRanges) {
    const auto a = file("a", 300'001), b = file("b", 5'000'003);
    Groups groups;
    for (int g = 0; g < 60; ++g) {
        DirectIoReader::Group& group = groups.emplace_back();
        for (std::uint64_t s = 0; s <= rng_.below(4); ++s) {
            const Bytes all = (rng_.below(2) == 0 ? a : b)->bytes();
            const std::size_t size = 1 + rng_.below(g % 3 == 0 ? 9000 : all.size());
            group.push_back(all.subspan(rng_.below(all.size() - size + 1), size));
        }
    }
    groups.push_back({a->bytes(), b->bytes()});
    groups.push_back({a->bytes().last(1), b->bytes().first(1)});
    const MappedFile* const files[] = {a.get(), b.get()};
    // Uses O_DIRECT if the file system supports it; the code is the same.
    const int probe = ::open(a->path().c_str(), O_RDONLY | DirectIoReader::open_flags);
    if (probe >= 0) ::close(probe);
    for (const int flags : {through_cache, DirectIoReader::open_flags}) {
        const auto reader = DirectIoReader::open(files, groups, flags);
        if (flags != through_cache && probe < 0) {
            EXPECT_EQ(reader, nullptr);
            continue;
        }
        ASSERT_NE(reader, nullptr);
        for (const DirectIoReader::Group& group : groups) expect_group(*reader, group);
    }
}

// The reader waits until its groups are used. A group larger than the window is read alone.
TEST_F(DirectIoReaderTest, StaysWithinTheWindow) {
    constexpr std::size_t window = 1'000'000;
    const auto a = file("a", 4'000'000);
    Groups groups;
    for (std::size_t at = 0; at + 300'000 <= a->bytes().size(); at += 300'000)
        groups.push_back({a->bytes().subspan(at, 300'000)});
    groups.insert(groups.begin() + 4, {a->bytes()});
    const auto reader = open(a, groups, through_cache, window);
    ASSERT_NE(reader, nullptr);
    for (const DirectIoReader::Group& group : groups) expect_group(*reader, group);
    // The destructor returns although the next group is never used.
    for (int i = 0; i < 20; ++i) EXPECT_NE(open(a, groups, through_cache, window), nullptr);
}

TEST_F(DirectIoReaderTest, ReportsATruncatedFile) {
    const auto a = file("a", 100'000);
    // The window is full, so the second group is not read before the first is used.
    const auto reader = open(a, {{a->bytes().first(10)}, {a->bytes()}}, through_cache, 20);
    ASSERT_NE(reader, nullptr);
    expect_group(*reader, {a->bytes().first(10)});
    fs::resize_file(folder_.file("a"), 5000);
    const auto late = reader->next();
    ASSERT_FALSE(late.ok());
    EXPECT_NE(late.error().message.find(folder_.file("a") + ": ends before byte 100000"), std::string::npos)
        << late.error().message;
}

TEST_F(DirectIoReaderTest, RejectsFilesThatAreNotMapped) {
    const auto a = file("a", 9000);
    EXPECT_NE(open(a, {{a->bytes()}}), nullptr);
    fs::rename(folder_.file("a"), folder_.file("old"));
    EXPECT_EQ(open(a, {{a->bytes()}}), nullptr);  // missing file
    file("a", 9000);
    EXPECT_EQ(open(a, {{a->bytes()}}), nullptr);  // replaced file
    const auto b = file("b", 100);
    const std::vector<std::uint8_t> elsewhere(50);
    EXPECT_EQ(open(b, {{Bytes(elsewhere)}}), nullptr);
}

TEST_F(DirectIoReaderTest, ReportsWrittenDataAsCached) {
    const auto a = file("a", 3'000'000);
    const Groups groups = {{a->bytes().first(1'000'000)}, {a->bytes().subspan(1'000'001)}};
    EXPECT_DOUBLE_EQ(cached_fraction(groups), 1.0);
    EXPECT_DOUBLE_EQ(cached_fraction({}), 1.0);
}

}  // namespace
}  // namespace draftscope
