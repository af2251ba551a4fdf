#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/capture.h"
#include "capture/record.h"

/// The capture file: SQLite, application_id 0x44534350, schema in storage/schema.cpp and docs/FORMATS.md.
namespace draftscope {

inline constexpr std::int32_t capture_application_id = 0x44534350;
inline constexpr int capture_schema_version = 1;

struct WriterStats {
    std::int64_t rows = 0;
    std::int64_t transactions = 0;
    std::string error;  ///< first write error ("" = none): the file keeps what was committed before it
};

/// Writes records to a new capture file on a thread of its own, which alone writes and checkpoints.
/// `push` never touches the disk; it waits when the queue is full.
class CaptureWriter : public RecordSink {
  public:
    /// The path must not exist (or `overwrite`, and nobody has it open); a folder that is missing or not
    /// writable is bad_input.
    static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path, bool overwrite);
    ~CaptureWriter() override;  ///< as close(), the result dropped

    void push(Record record) override;
    /// Waits until everything pushed so far is committed.
    Status flush();
    /// Flushes, builds the indexes, checkpoints, leaves a single file in delete-journal mode.
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
Result<std::shared_ptr<const Snapshot>> load_capture(const std::string& path);

/// Is it a capture that this program reads? Identity, version and tables only, so quick for any size; the
/// error says what was found instead.
Status probe_capture(const std::string& path);

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

}  // namespace draftscope
