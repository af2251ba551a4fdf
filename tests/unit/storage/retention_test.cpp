#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

// Tests captures of limited size, and queues that must not block their producers.
namespace draftscope {
namespace {

using testing::apply_all;
using testing::open_plain;
using testing::query;
using testing::RandomCapture;
using testing::ScratchFolder;

struct Written {
    WriterStats stats;
    std::shared_ptr<const Snapshot> snapshot;
};

Written write_bounded(const std::string& path, const std::vector<Record>& records,
                      const WriterOptions& options) {
    Written out;
    auto writer = require(CaptureWriter::create(path, options));
    for (std::size_t i = 0; i < records.size(); ++i) {
        writer->push(records[i]);
        if (i % 7 == 6) {
            EXPECT_TRUE(writer->flush().ok());
        }
    }
    EXPECT_TRUE(is_ok(writer->close()));
    out.stats = writer->stats();
    const auto report = require(check_capture(path));
    for (const CheckFinding& finding : report.findings) ADD_FAILURE() << finding.what;
    const auto loaded = load_capture(path);
    EXPECT_TRUE(is_ok(loaded));
    if (loaded.ok()) out.snapshot = *loaded;
    return out;
}

std::int64_t measured_rows(const std::string& path) {
    std::int64_t rows = 0;
    for (const char* table : {"step", "round", "node", "node_top", "token", "span", "gpu_op", "nvtx_range",
                              "head_eval", "counter"})
        rows += std::stoll(query(open_plain(path), fmt::format("SELECT count(*) FROM {}", table))[0]);
    return rows;
}

TEST(Limit, StopKeepsTheBeginningAndCountsTheRest) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(2, {1, 3, 200, 2, true}).records();
    const Snapshot whole = apply_all(records);
    WriterOptions options;
    options.max_rows = 3000;
    const Written written = write_bounded(path, records, options);
    const Snapshot& part = *written.snapshot;
    ASSERT_GT(part.steps.size(), 10u);
    ASSERT_LT(part.steps.size(), whole.steps.size());
    for (std::size_t i = 0; i < part.steps.size(); ++i)
        EXPECT_EQ(part.steps[i].row.id, whole.steps[i].row.id);
    EXPECT_LT(measured_rows(path), 3200);
    EXPECT_EQ(part.runs[0].ended, RunEnd::ok);
    EXPECT_EQ(part.prompts.size(), whole.prompts.size());
    EXPECT_GT(written.stats.lost_limit, 0);
    EXPECT_EQ(query(open_plain(path), "SELECT count FROM loss WHERE kind = 'capture_limit'"),
              std::vector<std::string>{std::to_string(written.stats.lost_limit)});
}

class Ring : public ::testing::TestWithParam<int> {};

TEST_P(Ring, KeepsTheNewestCompleteSteps) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const auto seed = static_cast<std::uint64_t>(GetParam());
    const std::vector<Record> records = RandomCapture(seed, {1, 3, 300, 2, true}).records();
    const Snapshot whole = apply_all(records);
    WriterOptions options;
    (GetParam() % 2 == 0 ? options.max_rows : options.max_bytes) = GetParam() % 2 == 0 ? 4000 : 400'000;
    options.file_full_policy = FileFullPolicy::ring;
    const Written written = write_bounded(path, records, options);
    const Snapshot& part = *written.snapshot;
    ASSERT_GT(part.steps.size(), 10u);
    ASSERT_LT(part.steps.size(), whole.steps.size());
    const std::size_t shift = whole.steps.size() - part.steps.size();
    for (std::size_t i = 0; i < part.steps.size(); ++i) {
        const StepEntry& a = part.steps[i];
        const StepEntry& b = whole.steps[i + shift];
        ASSERT_EQ(a.row.id, b.row.id);
        ASSERT_EQ(a.spans.count, b.spans.count);
        ASSERT_EQ(a.rounds.count, b.rounds.count);
        for (std::uint32_t r = 0; r < a.rounds.count; ++r)
            ASSERT_EQ(part.rounds[a.rounds.first + r].nodes.count,
                      whole.rounds[b.rounds.first + r].nodes.count);
    }
    if (options.max_rows > 0) {
        EXPECT_LT(measured_rows(path), options.max_rows + options.max_rows / 4);
    }
    EXPECT_GT(written.stats.dropped_ring, 0);
    EXPECT_EQ(query(open_plain(path), "SELECT count FROM loss WHERE kind = 'ring_dropped'"),
              std::vector<std::string>{std::to_string(written.stats.dropped_ring)});
}
INSTANTIATE_TEST_SUITE_P(RowsAndBytes, Ring, ::testing::Range(1, 7));

/// Holds the file's write lock, like a disk that does not respond.
class SlowDisk {
  public:
    explicit SlowDisk(const std::string& path) : db_(open_plain(path)) {
        EXPECT_EQ(db_.exec("BEGIN IMMEDIATE"), SQLITE_OK) << db_.message();
    }
    void answer() { EXPECT_EQ(db_.exec("COMMIT"), SQLITE_OK) << db_.message(); }

  private:
    storage::Database db_;
};

TEST(Queue, DropPolicyCountsLosses) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(3, {1, 2, 150, 1, true}).records();
    WriterOptions options{.queue_full_policy = QueueFullPolicy::drop, .queue_rows = 200};
    auto writer = require(CaptureWriter::create(path, options));
    SlowDisk disk(path);
    for (const Record& record : records) writer->push(record);  // returns although nothing is written
    const std::int64_t lost = writer->stats().lost_queue;
    EXPECT_GT(lost, 0);
    disk.answer();
    ASSERT_TRUE(writer->close().ok());
    EXPECT_EQ(query(open_plain(path), "SELECT kind, count FROM loss WHERE kind LIKE 'storage%'"),
              std::vector<std::string>{fmt::format("storage_queue_full|{}", lost)});
    const auto loaded = require(load_capture(path));
    EXPECT_EQ(loaded->runs[0].ended, RunEnd::ok);
    EXPECT_LT(loaded->steps.size(), apply_all(records).steps.size());
    EXPECT_TRUE(check_capture(path)->findings.empty()) << check_capture(path)->findings[0].what;
}

TEST(Queue, WaitsByDefaultAndLosesNothing) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(3, {1, 2, 150, 1, true}).records();
    WriterOptions options;
    options.queue_rows = 200;
    auto writer = require(CaptureWriter::create(path, options));
    SlowDisk disk(path);
    auto pushed = std::async(std::launch::async, [&] {
        for (const Record& record : records) writer->push(record);
    });
    EXPECT_EQ(pushed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    disk.answer();
    pushed.get();
    ASSERT_TRUE(writer->close().ok());
    const auto loaded = require(load_capture(path));
    testing::expect_equal(apply_all(records), *loaded);
}

TEST(Queue, ForwardingThreadDoesNotBlock) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const std::vector<Record> records = RandomCapture(3, {1, 2, 150, 1, true}).records();
    WriterOptions options;
    options.queue_rows = 200;
    auto writer = require(CaptureWriter::create(path, options));
    writer->set_unbounded_push();
    SlowDisk disk(path);
    for (const Record& record : records) writer->push(record);
    auto room = std::async(std::launch::async, [&] { writer->wait_for_space(); });
    EXPECT_EQ(room.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    disk.answer();
    room.get();
    ASSERT_TRUE(writer->close().ok());
    const auto loaded = require(load_capture(path));
    testing::expect_equal(apply_all(records), *loaded);
}

}  // namespace
}  // namespace draftscope
