#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/rows.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// Of a span, what its place on the timeline needs.
struct SpanOutline {
    RowId id = 0, run_id = 0, step_id = 0;
    TimeNs start_ns = 0, end_ns = 0;
    int phase_id = 0, level = 0, lane = 0, thread_id = 0;
};

/// The spans of a file that nobody writes any more, by id, read by another thread on a connection of its own
/// while the caller works on those before them. That thread's rows come from SQLite through an aggregate
/// function, which costs half of stepping a statement from row to row.
class SpanOutlines {
  public:
    using RowType = SpanRow;  ///< whose table it is
    /// Those beyond id `after`.
    SpanOutlines(const std::string& path, RowId after);
    ~SpanOutlines();
    SpanOutlines(const SpanOutlines&) = delete;
    SpanOutlines& operator=(const SpanOutlines&) = delete;

    bool has() const { return at_ < block_.size(); }
    const SpanOutline& peek() const { return block_[at_]; }
    SpanRow take();
    /// As Cursor's. What went wrong on the other thread is known when its rows up to there are taken.
    int code() const { return failure_ ? SQLITE_ERROR : SQLITE_OK; }
    const std::string& problem() const { return problem_; }
    const std::optional<Error>& failure() const { return failure_; }

  private:
    using Block = std::vector<SpanOutline>;
    static constexpr std::size_t block_rows = 1024, blocks_ahead = 8;

    void read(const std::string& path, RowId after);
    static void take_row(sqlite3_context* context, int count, sqlite3_value** values);
    bool add(sqlite3_value** values);
    bool hand_over();
    void refill();

    // The caller's.
    Block block_;
    std::size_t at_ = 0;
    std::string problem_;
    std::optional<Error> failure_;
    // The other thread's.
    Database own_;
    Block filling_;
    RowId last_id_ = 0;
    std::int64_t rows_ = 0;
    // Under the mutex.
    std::mutex mutex_;
    std::condition_variable filled_, room_;
    std::deque<Block> ready_;
    std::vector<Block> empty_;  ///< to be filled again
    bool done_ = false, stop_ = false;
    std::string end_problem_;
    std::optional<Error> end_failure_;
    std::thread thread_;
};

}  // namespace draftscope::storage
