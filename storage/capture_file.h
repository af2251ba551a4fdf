#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

/// The capture file is an SQLite database with application_id 0x44534350. storage/schema.cpp and
/// docs/FORMATS.md define its schema.
namespace draftscope {

inline constexpr std::int32_t capture_application_id = 0x44534350;
inline constexpr int capture_schema_version = 10;

/// What `push` does if the queue is full.
enum class QueueFullPolicy : std::uint8_t { wait, drop };
/// What happens when a capture reaches its limit: stop recording, or delete the oldest steps.
enum class FileFullPolicy : std::uint8_t { stop, ring };

struct WriterOptions {
    bool overwrite = false;
    QueueFullPolicy queue_full_policy = QueueFullPolicy::wait;
    std::int64_t queue_rows = 65536;  ///< rows that may wait in the queue
    /// Limit on measurement rows (all tables except run, prompt, vocab); 0 = none.
    std::int64_t max_rows = 0;
    std::int64_t max_bytes = 0;  ///< limit on the file without indexes, which add about a third; 0 = none
    FileFullPolicy file_full_policy = FileFullPolicy::stop;
};

struct WriterStats {
    std::int64_t rows = 0;
    std::int64_t transactions = 0;
    /// Measurement rows missing from the file, by reason. The file counts them in table `loss`.
    std::int64_t lost_queue = 0;       ///< the queue was full and QueueFullPolicy::drop was set
    std::int64_t lost_limit = 0;       ///< the limit was reached (`stop`)
    std::int64_t dropped_ring = 0;     ///< oldest rows, deleted for newer ones (`ring`)
    std::int64_t lost_error = 0;       ///< rows that arrived after a write error
    std::int64_t lost_vocabulary = 0;  ///< token texts that did not fit on the disk
    std::string error;                 ///< first write error; "" = none. Earlier commits stay in the file.
};
/// Values of loss.kind that the writer produces. Runs with such a loss have gaps.
inline constexpr std::string_view loss_queue_full = "storage_queue_full";
inline constexpr std::string_view loss_limit = "capture_limit";
inline constexpr std::string_view loss_ring = "ring_dropped";
inline constexpr std::string_view loss_error = "storage_error";
/// Only token texts are missing; the run has no gaps.
inline constexpr std::string_view loss_vocabulary = "vocabulary";

/// Writes records to a new capture file on a thread of its own.
///
/// Only that thread writes and checkpoints; `push` never accesses the disk. With QueueFullPolicy::wait,
/// `push` blocks while the queue is full. After set_unbounded_push(), producers call `wait_for_space`
/// instead. It returns at once with QueueFullPolicy::drop, after an error and after close.
class CaptureWriter : public RecordSink {
  public:
    /// Creates the file. The path must not exist, unless `overwrite` is set and no process has the file open.
    /// A missing or read-only folder is bad_input.
    static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path,
                                                         const WriterOptions& options);
    static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path, bool overwrite);

    /// Makes `push` accept records without blocking. Producers then limit the queue through `wait_for_space`,
    /// so that a forwarding thread (the recorder) never blocks.
    virtual void set_unbounded_push() = 0;
    /// Waits until everything pushed so far is committed.
    virtual Status flush() = 0;
    /// Flushes, builds the indexes, checkpoints and leaves a single file in delete-journal mode. If the file
    /// was deleted or replaced, the recording is saved as `<path>.rescued` and the error says so. The
    /// destructor calls it and ignores the result.
    virtual Status close() = 0;
    virtual WriterStats stats() const = 0;
    virtual const std::string& path() const = 0;
    /// What is unusual about the place of the file.
    virtual const Notes& notes() const = 0;
    /// Returns whether the path still refers to the file that was created, not to another's.
    virtual bool owns_name() const = 0;
    /// Deletes the closed file, unless the path refers to another.
    virtual void remove_file() = 0;
};

/// Reads a capture file (read-only) and replays it as records, as a live run would send them. Returns
/// bad_input if the file is not a capture, is corrupt or has a newer schema version.
Status read_capture(const std::string& path, RecordSink& sink);

/// File size above which draft trees and spans stay in the file until they are read. They are nearly all of
/// its rows, and a screen shows a few of them. Their runs must have ended and the indexes must exist.
inline constexpr std::int64_t default_preload_limit = 32 << 20;
inline constexpr std::int64_t no_preload_limit = std::int64_t{1} << 62;
/// Loads the file as a snapshot. The snapshot keeps the file open if rows stay in it.
Result<std::shared_ptr<const Snapshot>> load_capture(const std::string& path,
                                                     std::int64_t preload_limit = default_preload_limit);

/// Reads a capture that another process may still be writing.
class CaptureFollower {
  public:
    /// Opens the file; errors as in read_capture. From files larger than `preload_limit` bytes, nodes and
    /// tops are not read, and spans hold only what a timeline needs: see stored().
    static Result<std::unique_ptr<CaptureFollower>> open(const std::string& path,
                                                         std::int64_t preload_limit = no_preload_limit);
    virtual ~CaptureFollower() = default;
    /// Replays the rows committed since the last call; the first call replays all. Together the calls give
    /// the records of read_capture, except that a growing prompt is sent as progress and end. Cheap if
    /// nothing was committed. poll() calls `should_continue` after every step; if it returns false, poll()
    /// returns Error::cancelled.
    virtual Status poll(RecordSink& sink, const std::function<bool()>& should_continue = {}) = 0;
    /// Returns whether a run has no end: it is still being written, or its program was killed.
    virtual bool live() const = 0;
    /// Source of the rows that poll() leaves out, for Capture::set_stored() before the first poll. Null if
    /// poll() reads all rows.
    virtual std::shared_ptr<const OnDiskRows> stored() const = 0;
};

/// Checks whether the file is a capture that this program reads. Reads only identity, version and table
/// names, so it is fast for any size. The error describes the file.
Status probe_capture(const std::string& path);

/// Reads only the runs of a capture, without their rows. As fast as probe_capture.
Result<std::vector<RunRow>> read_runs(const std::string& path);

/// Joins captures into a new file, with new unique ids. The caller checks that their runs belong together. If
/// a file can't be read, no output is left.
Status merge_captures(const std::string& out, const std::vector<std::string>& files);

struct CheckFinding {
    std::string what;
};
/// Result of check_capture().
struct CheckReport {
    int schema_version = 0;
    std::vector<CheckFinding> findings;
    std::vector<std::string> remarks;  ///< not errors: recovered runs, losses during recording
    std::vector<std::pair<std::string, std::int64_t>> row_counts;  ///< table, rows
};
/// Checks integrity, foreign keys, unfinished runs and impossible values. Returns bad_input if the file is
/// not a capture.
Result<CheckReport> check_capture(const std::string& path);
/// Appends a note on a round to a complete capture, without other changes. Returns false if the file lacks
/// the round. A file that is read-only or being recorded is an error that says so.
Result<bool> add_round_note(const std::string& path, const NoteRow& note);
/// Marks unfinished runs of a killed process as `recovered`, builds missing indexes and truncates the WAL.
Status repair_capture(const std::string& path);

/// Copies the capture to one compact file (VACUUM INTO). `drop_text` removes prompt texts, outputs and notes.
Status export_sqlite(const std::string& path, const std::string& out, bool drop_text);
/// Writes one CSV file per table and view to the folder `out`.
Status export_csv(const std::string& path, const std::string& out, bool drop_text);
/// Writes Trace Event JSON for Perfetto and chrome://tracing. If `out` ends in .gz, it is compressed.
Status export_chrome(const std::string& path, const std::string& out, bool drop_text);

/// Writes the SQLite tables of a Nsight Systems export (schema 3.16.1), for existing queries and scripts.
/// Data on speculation is in DRAFTSCOPE_* tables. No table contains prompt text.
Status export_nsys(const std::string& path, const std::string& out);

}  // namespace draftscope
