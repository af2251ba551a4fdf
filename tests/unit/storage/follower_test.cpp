#include <gtest/gtest.h>

#include "file_helpers.h"
#include "random_capture.h"

// Reading a capture piece by piece while it grows gives what reading it at once does.
namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::RandomCapture;
using testing::TempFolder;

class IntoCapture : public RecordSink {
  public:
    void push(Record record) override {
        ++records;
        capture.apply(record);
    }
    Capture capture;
    int records = 0;
};

class Following : public ::testing::TestWithParam<int> {};

TEST_P(Following, SeesTheGrowingFileAsItsWriterMeantIt) {
    const TempFolder folder;
    const std::string path = folder.file("live.dscope");
    const auto seed = static_cast<std::uint64_t>(GetParam());
    const std::vector<Record> records = RandomCapture(seed, {2, 3, 40, 1 + GetParam() % 2, true}).records();
    auto writer = CaptureWriter::create(path, false);
    ASSERT_TRUE(writer.ok());
    auto follower = CaptureFollower::open(path);
    ASSERT_TRUE(follower.ok()) << follower.error().message;
    Rng rng(seed);
    IntoCapture into;
    for (std::size_t i = 0; i < records.size(); ++i) {
        (*writer)->push(records[i]);
        if (rng.below(20) != 0) continue;
        ASSERT_TRUE((*writer)->flush().ok());
        const Status polled = (*follower)->poll(into);
        ASSERT_TRUE(polled.ok()) << polled.error().message;
        const Snapshot now = into.capture.snapshot(1);
        const Snapshot meant =
            apply_all({records.begin(), records.begin() + static_cast<std::ptrdiff_t>(i) + 1});
        ASSERT_EQ(now.steps.size(), meant.steps.size());
        ASSERT_EQ(now.spans.size(), meant.spans.size());
        ASSERT_EQ(now.tokens.size(), meant.tokens.size());
        ASSERT_EQ(now.head_evals.size(), meant.head_evals.size());
        ASSERT_EQ(now.prompts.size(), meant.prompts.size());
        for (std::size_t p = 0; p < now.prompts.size(); ++p) {
            EXPECT_EQ(now.prompts[p]->output, meant.prompts[p]->output);
            EXPECT_EQ(now.prompts[p]->finish, meant.prompts[p]->finish);
        }
        ASSERT_EQ(now.runs.size(), meant.runs.size());
        for (std::size_t r = 0; r < now.runs.size(); ++r) EXPECT_EQ(now.runs[r].ended, meant.runs[r].ended);
    }
    ASSERT_TRUE((*writer)->close().ok());
    ASSERT_TRUE((*follower)->poll(into).ok());
    EXPECT_FALSE((*follower)->live());
    const int seen = into.records;
    ASSERT_TRUE((*follower)->poll(into).ok());
    EXPECT_EQ(into.records, seen);  // nothing new, nothing told
    const auto loaded = load_capture(path);
    ASSERT_TRUE(loaded.ok());
    const Snapshot followed = into.capture.snapshot(1);
    EXPECT_EQ(followed.steps.size(), (*loaded)->steps.size());
    EXPECT_EQ(followed.gpu_ops.size(), (*loaded)->gpu_ops.size());
    EXPECT_EQ(followed.nvtx_ranges.size(), (*loaded)->nvtx_ranges.size());
    EXPECT_EQ(followed.counters.size(), (*loaded)->counters.size());
    EXPECT_EQ(followed.notes.size(), (*loaded)->notes.size());
    EXPECT_EQ(followed.run_end_ns, (*loaded)->run_end_ns);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Following, ::testing::Range(1, 7));

TEST(Follower, StopsWhenAskedTo) {
    const TempFolder folder;
    const std::string path = folder.file("a.dscope");
    testing::write_all(path, RandomCapture(2, {1, 2, 40, 1, true}).records());
    auto follower = CaptureFollower::open(path);
    ASSERT_TRUE(follower.ok());
    IntoCapture into;
    int steps = 0;
    const Status stopped = (*follower)->poll(into, [&] { return ++steps < 10; });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
    EXPECT_EQ(into.capture.snapshot(1).steps.size(), 10u);
}

}  // namespace
}  // namespace draftscope
