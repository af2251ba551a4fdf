#pragma once

#include <functional>
#include <memory>

#include "capture/capture.h"
#include "capture/record.h"

namespace draftscope {

/// Between publications where no window looks: only the capture file waits for the records.
inline constexpr TimeNs unwatched_interval = 500 * ns_per_ms;

/// The recorder thread: alone owns a Capture, takes records from any thread, publishes immutable snapshots
/// (at most every `interval`, at once when the engine holds), and forwards each record to the storage sink.
/// Between two publications it gathers and sleeps: pushing a record seldom wakes it.
class Recorder : public RecordSink {
  public:
    /// `on_publish` runs on the recorder thread after each publication (wakes the window). `interval` in ns.
    explicit Recorder(std::function<void()> on_publish = {}, TimeNs interval = 33 * ns_per_ms);
    ~Recorder() override;

    void push(Record record) override;
    /// Next records also go to `sink` (null = none), in order. The caller keeps it alive until set to
    /// another. `push` first waits for the sink's room, on the caller's thread: a slow disk delays whoever
    /// records, never the snapshots. For that the sink itself must take what it is given at once.
    void set_storage(RecordSink* sink);
    /// Starts a new, empty capture (a new run in an unsaved window keeps the old runs: not called then).
    void clear();
    /// Replaces the capture by an opened file's content.
    void show(std::shared_ptr<const Snapshot> snapshot);
    std::shared_ptr<const Snapshot> snapshot() const;
    /// Waits until everything pushed so far is applied and published.
    void flush();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
