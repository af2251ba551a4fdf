#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

/// The capture file: SQLite, application_id 0x44534350, schema in storage/schema.cpp and docs/FORMATS.md.
namespace draftscope {

inline constexpr std::int32_t capture_application_id = 0x44534350;
inline constexpr int capture_schema_version = 4;

/// What `push` does while the queue is full.
enum class WhenQueueFull : std::uint8_t { wait, drop };
/// What a capture does when it has reached its limit: record no more, or forget the oldest steps.
enum class WhenFileFull : std::uint8_t { stop, ring };

struct WriterOptions {
    bool overwrite = false;
    WhenQueueFull when_queue_full = WhenQueueFull::wait;
    std::int64_t queue_rows = 65536;  ///< that may wait for the disk
    std::int64_t max_rows = 0;        ///< of measurements (all tables but run, prompt, vocab); 0 = no limit
    std::int64_t max_bytes = 0;       ///< of the file before its indexes (about a third more); 0 = no limit
    WhenFileFull when_file_full = WhenFileFull::stop;
};

struct WriterStats {
    std::int64_t rows = 0;
    std::int64_t transactions = 0;
    /// Rows of measurements that are not in the file, by reason; the file has them in table `loss`.
    std::int64_t lost_queue = 0;       ///< the queue was full and nobody was to wait
    std::int64_t lost_limit = 0;       ///< the limit was reached (`stop`)
    std::int64_t dropped_ring = 0;     ///< oldest rows given up for newer ones (`ring`)
    std::int64_t lost_error = 0;       ///< they came when writing had failed
    std::int64_t lost_vocabulary = 0;  ///< token texts, which the disk had no room for
    std::string error;  ///< first write error ("" = none): the file keeps what was committed before it
};
/// Kinds of table `loss` that the writer itself makes; such runs have gaps.
inline constexpr std::string_view loss_queue_full = "storage_queue_full";
inline constexpr std::string_view loss_limit = "capture_limit";
inline constexpr std::string_view loss_ring = "ring_dropped";
inline constexpr std::string_view loss_error = "storage_error";
/// No gap: token texts alone are missing.
inline constexpr std::string_view loss_vocabulary = "vocabulary";

/// Writes records to a new capture file on a thread of its own, which alone writes and checkpoints.
/// `push` never touches the disk; with WhenQueueFull::wait it waits while the queue is full, unless
/// `unbounded_push` says that the producers wait themselves through `wait_for_room`.
class CaptureWriter : public RecordSink {
  public:
    /// The path must not exist (or `overwrite`, and nobody has it open); a folder that is missing or not
    /// writable is bad_input.
    static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path,
                                                         const WriterOptions& options);
    static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path, bool overwrite);
    ~CaptureWriter() override;  ///< as close(), the result dropped

    void push(Record record) override;
    /// Waits while the queue is full; returns at once when nobody is to wait, after an error and after close.
    void wait_for_room() override;
    /// From now on `push` takes what it is given at once: whoever makes records waits in `wait_for_room`, so
    /// that a thread in between (the recorder) never does.
    void set_unbounded_push();
    /// Waits until everything pushed so far is committed.
    Status flush();
    /// All that is committed so far as one compact file, from the writer's own connection: works too when the
    /// file itself was deleted meanwhile. `out` must not exist.
    Status save_copy(const std::string& out);
    /// Flushes, builds the indexes, checkpoints, leaves a single file in delete-journal mode. When the file
    /// was deleted or replaced meanwhile, what was recorded goes to `<path>.rescued` and the error says so.
    Status close();
    WriterStats stats() const;
    const std::string& path() const;

  private:
    struct Impl;
    explicit CaptureWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Reads a capture file (read-only) and replays it as records, so that `Capture` is filled as it would be
/// live. Not a capture, newer schema, corrupt: bad_input with what was found.
Status read_capture(const std::string& path, RecordSink& sink);

/// Draft trees and spans of larger files stay in the file until one is looked at (nearly all of its rows, of
/// which a screen shows a handful), once their runs have ended and the indexes are there.
inline constexpr std::int64_t rows_ahead_bytes = 32 << 20;
inline constexpr std::int64_t rows_always_ahead = std::int64_t{1} << 62;
/// The file as a snapshot, which keeps it open if rows stay in it.
Result<std::shared_ptr<const Snapshot>> load_capture(const std::string& path,
                                                     std::int64_t rows_ahead = rows_ahead_bytes);

/// Reads a capture that another process may still be writing, whenever it is asked to.
class CaptureFollower {
  public:
    /// Errors as read_capture. Files beyond `rows_ahead` bytes come without nodes and tops, and their
    /// spans without what a timeline does not show: see stored().
    static Result<std::unique_ptr<CaptureFollower>> open(const std::string& path,
                                                         std::int64_t rows_ahead = rows_always_ahead);
    ~CaptureFollower();
    /// Replays what was committed since the last call, the first time everything: together the records of
    /// read_capture, except that a growing prompt comes as progress and its end. Cheap when nothing was
    /// committed. `go_on` is asked after every step; false ends with Error::cancelled.
    Status poll(RecordSink& sink, const std::function<bool()>& go_on = {});
    /// Some run has no end: it is being written, or its program was killed.
    bool live() const;
    /// Where the rows are that poll() leaves out, to be given to the Capture before it; null when it leaves
    /// none out.
    std::shared_ptr<const StoredRows> stored() const;

  private:
    struct Impl;
    explicit CaptureFollower(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Is it a capture that this program reads? Identity, version and tables only, so quick for any size; the
/// error says what was found instead.
Status probe_capture(const std::string& path);

/// The runs of a capture alone, without their rows; as quick as probe_capture.
Result<std::vector<RunRow>> read_runs(const std::string& path);

/// Joins captures into a new one, runs after runs, ids made unique. Whether their runs belong together is for
/// the caller to say. Nothing is left behind when one can't be read.
Status merge_captures(const std::string& out, const std::vector<std::string>& files);

struct CheckFinding {
    std::string what;
};
struct CheckReport {
    int schema_version = 0;
    std::vector<CheckFinding> findings;
    std::vector<std::string> remarks;  ///< worth knowing, no fault: recovered runs, losses during recording
    std::vector<std::pair<std::string, std::int64_t>> row_counts;  ///< table, rows
};
/// integrity_check, foreign keys, unfinished runs, impossible values. Error (bad_input) when it is no
/// capture.
Result<CheckReport> check_capture(const std::string& path);
/// Marks runs that a killed process left as `recovered`, finishes indexes, truncates the WAL.
Status repair_capture(const std::string& path);

/// One compact file by VACUUM INTO; `drop_text` leaves out prompt texts, outputs and notes.
Status export_sqlite(const std::string& path, const std::string& out, bool drop_text);
/// One CSV per table and view into folder `out`.
Status export_csv(const std::string& path, const std::string& out, bool drop_text);
/// Trace Event JSON that Perfetto and chrome://tracing open; `out` ending in .gz is compressed.
Status export_chrome(const std::string& path, const std::string& out, bool drop_text);

/// The SQLite tables of a Nsight Systems export (schema 3.16.1), for queries and scripts written for those;
/// what speculation adds is in DRAFTSCOPE_* tables. No prompt text is in any of them.
Status export_nsys(const std::string& path, const std::string& out);

}  // namespace draftscope
