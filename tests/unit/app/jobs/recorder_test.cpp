#include "app/jobs/run/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

namespace draftscope {
namespace {

constexpr TimeNs an_hour = 3600 * ns_per_s;

StepRecord step(RowId id) {
    StepRecord record;
    record.step.id = id;
    record.step.run_id = 1;
    return record;
}

struct CollectingSink : RecordSink {
    std::mutex mutex;
    std::vector<RowId> steps;
    void push(Record record) override {
        const std::lock_guard lock(mutex);
        if (const auto* s = std::get_if<StepRecord>(&record)) steps.push_back(s->step.id);
    }
};

/// Blocks in push() until opened, like a stalled disk.
struct StuckSink : RecordSink {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false, entered = false;
    void push(Record) override {
        std::unique_lock lock(mutex);
        entered = true;
        changed.notify_all();
        changed.wait(lock, [this] { return open; });
    }
};

TEST(Recorder, FlushMakesEverythingPushedVisible) {
    Recorder recorder({}, an_hour);
    for (RowId id = 1; id <= 100; ++id) recorder.push(step(id));
    recorder.flush();
    EXPECT_EQ(recorder.snapshot()->steps.size(), 100u);
    const auto version = recorder.snapshot()->version;
    recorder.flush();
    EXPECT_EQ(recorder.snapshot()->version, version);  // nothing new, nothing published
}

TEST(Recorder, ForwardsRecordsInOrderWhileStorageIsSet) {
    CollectingSink sink;
    Recorder recorder({}, an_hour);
    recorder.push(step(1));
    recorder.set_storage(&sink);
    for (RowId id = 2; id <= 50; ++id) recorder.push(step(id));
    recorder.set_storage(nullptr);  // waits until the sink has received all records
    EXPECT_EQ(sink.steps.size(), 49u);
    for (std::size_t i = 0; i < sink.steps.size(); ++i) EXPECT_EQ(sink.steps[i], static_cast<RowId>(i) + 2);
    recorder.push(step(51));
    recorder.flush();
    EXPECT_EQ(sink.steps.size(), 49u);
    EXPECT_EQ(recorder.snapshot()->steps.size(), 51u);
}

TEST(Recorder, PublishesAHeldRoundAtOnce) {
    std::mutex mutex;
    std::condition_variable changed;
    int published = 0;
    Recorder recorder(
        [&] {
            const std::lock_guard lock(mutex);
            ++published;
            changed.notify_all();
        },
        an_hour);
    LiveRound live;
    live.active = true;
    live.at.level = 3;
    recorder.push(step(1));
    recorder.push(std::move(live));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
        const auto seen = recorder.snapshot();
        return seen->live != nullptr && seen->live->at.level == 3;
    });
    EXPECT_GE(published, 1);
}

TEST(Recorder, SlowDiskDoesNotDelaySnapshots) {
    StuckSink sink;
    Recorder recorder({}, 0);
    recorder.set_storage(&sink);
    recorder.push(step(1));
    {
        std::unique_lock lock(sink.mutex);
        sink.changed.wait(lock, [&] { return sink.entered; });
    }
    EXPECT_EQ(recorder.snapshot()->steps.size(), 1u);
    {
        const std::lock_guard lock(sink.mutex);
        sink.open = true;
    }
    sink.changed.notify_all();
    recorder.set_storage(nullptr);
}

/// Accepts records without waiting but has no room, like the capture writer with a stalled disk.
class FullSink : public RecordSink {
  public:
    void push(Record) override { ++taken; }
    void wait_for_space() override {
        std::unique_lock lock(mutex);
        ++waiting;
        changed.notify_all();
        changed.wait(lock, [&] { return room; });
    }
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<int> taken{0};
    int waiting = 0;
    bool room = false;
};

TEST(Recorder, ProducersWaitForTheDiskWhileSnapshotsContinue) {
    FullSink sink;
    Recorder recorder({}, 0);
    recorder.push(step(1));
    recorder.set_storage(&sink);
    std::thread producer([&] { recorder.push(step(2)); });
    {
        std::unique_lock lock(sink.mutex);
        sink.changed.wait(lock, [&] { return sink.waiting == 1; });
    }
    LiveRound live;  // never stored, so it never waits
    live.active = true;
    recorder.push(live);
    recorder.flush();
    EXPECT_NE(recorder.snapshot()->live, nullptr);
    EXPECT_EQ(recorder.snapshot()->steps.size(), 1u);
    {
        const std::lock_guard lock(sink.mutex);
        sink.room = true;
    }
    sink.changed.notify_all();
    producer.join();
    recorder.flush();
    EXPECT_EQ(recorder.snapshot()->steps.size(), 2u);
    recorder.set_storage(nullptr);
}

/// Signals when it has received a number of records.
struct CountingSink : RecordSink {
    std::mutex mutex;
    std::condition_variable changed;
    int taken = 0;
    void push(Record) override {
        const std::lock_guard lock(mutex);
        ++taken;
        changed.notify_all();
    }
    void wait_for(int count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return taken >= count; });
    }
};

TEST(Recorder, AppliesManyRecordsBeforeThePublication) {
    CountingSink sink;
    Recorder recorder({}, an_hour);
    recorder.set_storage(&sink);
    for (RowId id = 1; id <= 10'000; ++id) recorder.push(step(id));
    sink.wait_for(9'000);  // the last few may wait for the interval
    recorder.set_storage(nullptr);
    EXPECT_EQ(sink.taken, 10'000);
}

TEST(Recorder, AppliesFewRecordsWithThePublication) {
    CountingSink sink;
    Recorder recorder({}, 5 * ns_per_ms);
    recorder.set_storage(&sink);
    for (RowId id = 1; id <= 20; ++id) {  // finds the thread in any of its states
        recorder.push(step(id));
        sink.wait_for(static_cast<int>(id));
        if (id % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    recorder.set_storage(nullptr);
}

TEST(Recorder, ShowsAnOpenedFileUntilTheNextRecord) {
    auto file = std::make_shared<Snapshot>();
    file->source = "run.dscope";
    file->runs.resize(2);
    Recorder recorder({}, an_hour);
    recorder.push(step(1));
    recorder.show(file);
    recorder.flush();
    EXPECT_EQ(recorder.snapshot()->source, "run.dscope");
    EXPECT_EQ(recorder.snapshot()->runs.size(), 2u);
    recorder.clear();
    recorder.push(step(7));
    recorder.flush();
    EXPECT_EQ(recorder.snapshot()->source, "");
    ASSERT_EQ(recorder.snapshot()->steps.size(), 1u);
    EXPECT_EQ(recorder.snapshot()->steps[0].row.id, 7);
}

TEST(Recorder, SupportsConcurrentPushAndSnapshot) {
    Recorder recorder({}, 0);
    std::atomic<bool> done{false};
    std::thread reader([&] {
        std::uint64_t version = 0;
        while (!done.load()) {
            const auto snapshot = recorder.snapshot();
            EXPECT_GE(snapshot->version, version);
            version = snapshot->version;
            for (std::size_t i = 0; i < snapshot->steps.size(); ++i)
                ASSERT_EQ(snapshot->steps[i].row.run_id, 1);
        }
    });
    std::vector<std::thread> writers;
    for (int t = 0; t < 3; ++t)
        writers.emplace_back([&] {
            for (RowId id = 0; id < 1000; ++id) recorder.push(step(id));
        });
    for (auto& writer : writers) writer.join();
    recorder.flush();
    done.store(true);
    reader.join();
    EXPECT_EQ(recorder.snapshot()->steps.size(), 3000u);
}

TEST(Recorder, StopsWithQueuedWork) {
    CollectingSink sink;
    {
        Recorder recorder({}, an_hour);
        recorder.set_storage(&sink);
        for (RowId id = 0; id < 500; ++id) recorder.push(step(id));
    }
    EXPECT_EQ(sink.steps.size(), 500u);
}

}  // namespace
}  // namespace draftscope
