#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Interval between publications without a window, when only the capture file consumes the records.
inline constexpr TimeNs unwatched_interval = 500 * ns_per_ms;

/// The recorder thread, sole owner of a Capture. Takes records from any thread, publishes immutable snapshots
/// and forwards each record to the storage sink. Publishes at most every `interval`, and immediately when the
/// engine is held. Sleeps between publications: pushing a record seldom wakes it.
class Recorder : public RecordSink {
  public:
    /// `on_publish` runs on the recorder thread after each publication (wakes the window). `interval` in ns.
    explicit Recorder(std::function<void()> on_publish = {}, TimeNs interval = 33 * ns_per_ms);
    ~Recorder() override;
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    /// A note is added to what is shown, also to an opened file's content, which other records replace.
    void push(Record record) override;
    /// Forwards later records to `sink` as well, in order (null = none). The caller keeps the sink alive
    /// until the next call. push() waits on the caller's thread for room in the sink, so a slow disk delays
    /// producers but not snapshots. The sink itself must therefore accept records without waiting.
    void set_storage(RecordSink* sink);
    /// Starts a new, empty capture. Not called for a further run in an unsaved window, which keeps its old
    /// runs.
    void clear() { enqueue(ShowRequest{}); }
    /// Replaces the capture by an opened file's content.
    void show(std::shared_ptr<const Snapshot> snapshot) { enqueue(ShowRequest{std::move(snapshot)}); }
    std::shared_ptr<const Snapshot> snapshot() const { return box_.take(); }
    /// Waits until everything pushed so far is applied and published.
    void flush();

  private:
    /// Requests to the recorder thread, queued in order with the records.
    struct ShowRequest {
        std::shared_ptr<const Snapshot> snapshot;  ///< null = start an empty capture
    };
    struct StorageRequest {
        RecordSink* sink;
    };
    using Item = std::variant<Record, ShowRequest, StorageRequest>;

    static bool wants_publication_now(const Item& item);
    void run();
    void forward(std::vector<Item>& items);
    bool take(std::vector<Item>& items, bool dirty, std::uint64_t& last_item, bool& flush);
    bool apply(std::vector<Item>& items);
    void publish();
    void enqueue(Item item);

    std::function<void()> on_publish_;
    std::chrono::nanoseconds interval_;
    SnapshotSlot box_;

    /// The sink on which producers wait when the disk is slow, so that the recorder thread never waits.
    std::shared_mutex backpressure_mutex_;
    RecordSink* backpressure_sink_ = nullptr;

    std::mutex mutex_;
    std::condition_variable work_, done_;
    std::vector<Item> queue_;
    std::uint64_t pushed_ = 0;     ///< items ever queued
    std::uint64_t completed_ = 0;  ///< items published and passed to the storage
    int flushing_ = 0;             ///< callers in flush()
    bool urgent_ = false;          ///< a queued item must be published at once
    bool asleep_ = false;          ///< the thread waits for any item, not for a time
    bool stop_ = false;

    // Recorder thread only.
    Capture capture_;
    RecordSink* storage_ = nullptr;
    std::shared_ptr<const Snapshot> shown_;  ///< an opened file instead of `capture_`
    std::uint64_t version_ = 0;
    std::chrono::steady_clock::time_point last_publication_{};
    std::thread thread_;  ///< last member: starts after the others are constructed
};

/// Writes a snapshot to a capture file atomically: an existing file is replaced only when the new one is
/// complete.
Status save_snapshot(const Snapshot& snapshot, const std::string& path);

}  // namespace draftscope
