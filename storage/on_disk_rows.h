#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/capture.h"
#include "capture/rows.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Reads the outlines of the spans of a finished file in id order, on another thread and connection. An
/// outline has what the span's place on the timeline needs: all fields but its round, rows and bytes. That
/// thread reads ahead while the caller processes earlier spans. It gets the rows through an SQLite aggregate
/// function, which costs half as much as stepping a statement.
class SpanOutlines {
  public:
    using RowType = SpanRow;  ///< row type of the table
    /// Reads the spans beyond id `after`.
    SpanOutlines(const std::string& path, RowId after);
    ~SpanOutlines();
    SpanOutlines(const SpanOutlines&) = delete;
    SpanOutlines& operator=(const SpanOutlines&) = delete;

    bool has() const { return at_ < block_.size(); }
    const SpanRow& peek() const { return block_[at_]; }
    SpanRow take();
    /// As in Cursor. Errors of the other thread appear when the rows before them have been taken.
    int code() const { return failure_ ? SQLITE_ERROR : SQLITE_OK; }
    const std::string& problem() const { return problem_; }
    const std::optional<Error>& failure() const { return failure_; }

  private:
    using Block = std::vector<SpanRow>;
    static constexpr std::size_t block_rows = 1024, blocks_ahead = 8;

    void read(const std::string& path, RowId after);
    static void take_row(sqlite3_context* context, int count, sqlite3_value** values);
    bool add(sqlite3_value** values);
    bool submit_block();
    void refill();

    // Used by the caller.
    Block block_;
    std::size_t at_ = 0;
    std::string problem_;
    std::optional<Error> failure_;
    // Used by the other thread.
    Database own_;
    Block filling_;
    RowId last_id_ = 0;
    std::int64_t rows_ = 0;
    // Protected by mutex_.
    std::mutex mutex_;
    std::condition_variable filled_, space_;
    std::deque<Block> ready_;
    std::vector<Block> empty_;  ///< buffers to be filled again
    bool done_ = false, stop_ = false;
    std::string end_problem_;
    std::optional<Error> end_failure_;
    std::thread thread_;
};

/// Opens the draft trees and spans of a finished capture for single reads. They use a separate connection, so
/// they may outlive the caller's. Returns null if the file is small, still being written, or lacks indexes or
/// step phases; the caller then reads all rows.
std::shared_ptr<const OnDiskRows> open_on_disk_rows(const std::string& path, const Database& db,
                                                    std::int64_t preload_limit);

/// Returns what is wrong with a tree; "" if it is valid.
std::string tree_problem(RowId round_id, const RoundTree& tree);

}  // namespace draftscope::storage
