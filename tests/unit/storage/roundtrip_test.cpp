#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::apply_all;
using testing::CaptureShape;
using testing::expect_equal;
using testing::RandomCapture;
using testing::ScratchFolder;
using testing::write_all;

class RoundTrip : public ::testing::TestWithParam<int> {};

TEST_P(RoundTrip, FileReproducesTheLiveSnapshot) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const auto seed = static_cast<std::uint64_t>(GetParam());
    const CaptureShape shape{1 + GetParam() % 3, 3, 10 + GetParam(), 1 + GetParam() % 2, true};
    const std::vector<Record> records = RandomCapture(seed, shape).records();
    write_all(path, records);
    const auto loaded = require(load_capture(path));
    expect_equal(apply_all(records), *loaded);
    EXPECT_EQ(loaded->source, path);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RoundTrip, ::testing::Range(1, 9));

TEST(CaptureFile, IsASingleFileAfterClose) {
    const ScratchFolder folder;
    write_all(folder.file("a.dscope"), RandomCapture(3, {}).records());
    int files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
    EXPECT_EQ(files, 1);
}

TEST(CaptureFile, IsReadableByOthersWhileItIsWritten) {
    const ScratchFolder folder;
    const std::string path = folder.file("live.dscope");
    const std::vector<Record> records = RandomCapture(5, {1, 3, 30, 1, false}).records();
    auto writer = require(CaptureWriter::create(path, false));
    const std::size_t half = records.size() / 2;
    for (std::size_t i = 0; i < half; ++i) writer->push(records[i]);
    ASSERT_TRUE(writer->flush().ok());
    const auto first = require(load_capture(path));
    expect_equal(apply_all({records.begin(), records.begin() + static_cast<std::ptrdiff_t>(half)}), *first);
    EXPECT_EQ(first->runs[0].ended, RunEnd::live);
    for (std::size_t i = half; i < records.size(); ++i) writer->push(records[i]);
    ASSERT_TRUE(writer->flush().ok());
    const auto second = require(load_capture(path));
    expect_equal(apply_all(records), *second);
    EXPECT_TRUE(writer->close().ok());
}

TEST(CaptureFile, IsIdentifiedWithoutItsLog) {
    const ScratchFolder folder;
    auto writer = require(CaptureWriter::create(folder.file("live.dscope"), false));
    for (const Record& record : RandomCapture(5, {1, 3, 9, 1, false}).records()) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    std::filesystem::copy_file(folder.file("live.dscope"), folder.file("alone.dscope"));
    EXPECT_TRUE(probe_capture(folder.file("alone.dscope")).ok());
}

TEST(CaptureFile, LiveRoundsAreNotStored) {
    const ScratchFolder folder;
    std::vector<Record> records = RandomCapture(4, {1, 1, 3, 1, true}).records();
    const Snapshot live = apply_all(records);
    LiveRound held;
    held.active = true;
    records.insert(records.begin() + 4, held);
    write_all(folder.file("a.dscope"), records);
    const auto loaded = require(load_capture(folder.file("a.dscope")));
    expect_equal(live, *loaded);
    EXPECT_EQ(loaded->live, nullptr);
}

TEST(CaptureFile, AVeryLongRunPassesThroughTheBoundedQueue) {
    const ScratchFolder folder;
    const std::vector<Record> records = RandomCapture(6, {1, 2, 3000, 2, true}).records();
    write_all(folder.file("a.dscope"), records);
    const auto loaded = require(load_capture(folder.file("a.dscope")));
    expect_equal(apply_all(records), *loaded);
}

TEST(CaptureFile, StoresNaN) {
    const ScratchFolder folder;
    std::vector<Record> records = RandomCapture(4, {1, 1, 3, 1, true}).records();
    records.push_back(CounterRow{1, 5, "odd", std::numeric_limits<double>::quiet_NaN()});
    records.push_back(CounterRow{1, 5, "deep", -std::numeric_limits<double>::infinity()});
    write_all(folder.file("a.dscope"), records);
    const auto loaded = require(load_capture(folder.file("a.dscope")));
    const auto& counters = loaded->counters;
    EXPECT_TRUE(std::isnan(counters[counters.size() - 2].value));
    EXPECT_EQ(counters.back().value, -std::numeric_limits<double>::infinity());
}

TEST(CaptureFile, PushAfterCloseIsIgnored) {
    const ScratchFolder folder;
    auto writer = require(CaptureWriter::create(folder.file("a.dscope"), false));
    ASSERT_TRUE(writer->close().ok());
    writer->push(CounterRow{1, 5, "late", 1.0});
    EXPECT_TRUE(writer->flush().ok());
    EXPECT_TRUE(writer->close().ok());
}

}  // namespace
}  // namespace draftscope
