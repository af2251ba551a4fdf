#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "capture/record.h"
#include "storage/capture_file.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Reserves disk space for the last rows of a recording, in an unnamed file. A full disk thus leaves space
/// for them, and a killed program leaves no file.
class SpaceReserve {
  public:
    /// Reserves `bytes` on the disk of `path`, or nothing if that fails.
    SpaceReserve(const std::string& path, std::int64_t bytes);
    ~SpaceReserve() { release(); }
    SpaceReserve(const SpaceReserve&) = delete;
    SpaceReserve& operator=(const SpaceReserve&) = delete;
    void release();

  private:
    int file_ = -1;
};

/// Returns the number of rows that a record becomes.
std::int64_t row_weight(const Record& record);
/// Returns whether the record holds data that grows with time: steps, spans, device operations, ranges,
/// counters. Other records (runs, prompts, notes, losses) are always kept, so that a limited capture still
/// describes the recording.
bool is_measurement(const Record& record);

/// Limits the size of a capture. At `max_rows` or `max_bytes` it either rejects further measurements (`stop`)
/// or deletes the oldest eighth in complete steps (`ring`). SQLite reuses the freed pages. Writer thread
/// only.
class Retention {
  public:
    Retention(const Database& db, const WriterOptions& options) : db_(db), options_(options) {}

    bool bounded() const { return options_.max_rows > 0 || options_.max_bytes > 0; }
    /// Call before a record is written. Returns false if the limit is exceeded. Removes rows of deleted steps
    /// from the record.
    bool admit(Record& record);
    /// Call between two transactions. Returns SQLITE_OK or the error code.
    int after_commit();
    std::int64_t dropped_rows() const { return dropped_; }

    static constexpr std::size_t tables = 10;  ///< from which the ring deletes

  private:
    /// Highest rowid of each table at the end of a chunk.
    using ChunkEnds = std::array<std::int64_t, tables>;

    bool over() const;
    std::int64_t used_bytes() const;
    ChunkEnds chunk_ends() const;
    int drop_oldest();

    const Database& db_;
    WriterOptions options_;
    std::deque<ChunkEnds> chunks_;
    std::int64_t rows_ = 0, dropped_ = 0;
    std::int64_t rows_at_chunk_ = 0, bytes_at_chunk_ = 0;
    std::int64_t bytes_ = 0;  ///< at the last commit
    RowId deleted_step_ = 0, deleted_round_ = 0;
};

}  // namespace draftscope::storage
