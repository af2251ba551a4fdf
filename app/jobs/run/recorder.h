#pragma once

#include <functional>
#include <memory>

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

    void push(Record record) override;
    /// Forwards later records to `sink` as well, in order (null = none). The caller keeps the sink alive
    /// until the next call. push() waits on the caller's thread for room in the sink, so a slow disk delays
    /// producers but not snapshots. The sink itself must therefore accept records without waiting.
    void set_storage(RecordSink* sink);
    /// Starts a new, empty capture. Not called for a further run in an unsaved window, which keeps its old
    /// runs.
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
