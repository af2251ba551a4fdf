#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "capture/record.h"
#include "storage/capture_file.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Rows that a record becomes.
std::int64_t row_weight(const Record& record);
/// Steps, spans, device operations, ranges, counters: what grows with time. The rest (runs, prompts, notes,
/// losses) is always kept, so that a bounded capture still says what was recorded.
bool is_measurement(const Record& record);

/// Bounds a capture: once `max_rows` or `max_bytes` are reached it admits no more measurements (`stop`) or
/// deletes the oldest eighth (`ring`), whole steps at a time, whose pages SQLite then uses again. Writer
/// thread only.
class Retention {
  public:
    Retention(const Database& db, const WriterOptions& options) : db_(db), options_(options) {}

    bool bounded() const { return options_.max_rows > 0 || options_.max_bytes > 0; }
    /// Before a record is written: false = over the limit. Takes rows of steps that are gone out of it.
    bool admit(Record& record);
    /// Between two transactions. SQLITE_OK or the error code.
    int after_commit();
    std::int64_t dropped_rows() const { return dropped_; }

  private:
    static constexpr std::size_t tables = 11;
    /// Highest rowid of each table when a chunk ended.
    using Marks = std::array<std::int64_t, tables>;

    bool over() const;
    std::int64_t used_bytes() const;
    Marks marks() const;
    int drop_oldest();

    const Database& db_;
    WriterOptions options_;
    std::deque<Marks> chunks_;
    std::int64_t rows_ = 0, dropped_ = 0;
    std::int64_t rows_at_chunk_ = 0, bytes_at_chunk_ = 0;
    std::int64_t bytes_ = 0;  ///< as of the last commit
    RowId gone_step_ = 0, gone_round_ = 0;
};

}  // namespace draftscope::storage
