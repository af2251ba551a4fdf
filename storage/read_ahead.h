#pragma once

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "storage/row_reader.h"

namespace draftscope::storage {

/// A Cursor whose rows another thread reads and decodes, on a connection of its own, while the caller works
/// on the rows before them: for the largest table of a file that nobody writes any more. Where that is not
/// asked for, or the file can't be opened again, it is the caller's own cursor.
template <typename Row>
class ReadAhead {
  public:
    using RowType = Row;
    enum class Where { here, other_thread };

    ReadAhead(const std::string& path, const Database& db, RowId after, Where where) {
        if (where == Where::other_thread) {
            auto own = open_capture(path, Open::unchecked);
            if (own.ok()) {
                own_ = std::move(*own);
                thread_ = std::thread([this, path, after] { read(path, after); });
                refill();
                return;
            }
        }
        here_ = Cursor<Row>(db, after);
    }
    ~ReadAhead() {
        if (!thread_.joinable()) return;
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        room_.notify_one();
        thread_.join();
    }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    bool has() const { return here_ ? here_->has() : at_ < block_.size(); }
    const Row& peek() const { return here_ ? here_->peek() : block_[at_]; }
    Row take() {
        if (here_) return here_->take();
        Row row = std::move(block_[at_]);
        if (++at_ == block_.size()) refill();
        return row;
    }
    /// As Cursor's. What went wrong on the other thread is known when its rows up to there are taken.
    int code() const { return here_ ? here_->code() : code_; }
    const std::string& problem() const { return here_ ? here_->problem() : problem_; }
    /// The other connection's error; none when the caller's own has it.
    const std::optional<Error>& failure() const { return failure_; }

  private:
    static constexpr std::size_t block_rows = 4096, blocks_ahead = 4;

    void read(const std::string& path, RowId after) {
        pthread_setname_np(pthread_self(), "ds-reader");
        Cursor<Row> cursor(own_, after);
        while (cursor.has()) {
            std::vector<Row> block;
            block.reserve(block_rows);
            while (cursor.has() && block.size() < block_rows) block.push_back(cursor.take());
            std::unique_lock lock(mutex_);
            room_.wait(lock, [&] { return stop_ || ready_.size() < blocks_ahead; });
            if (stop_) return;
            ready_.push_back(std::move(block));
            filled_.notify_one();
        }
        const std::lock_guard lock(mutex_);
        done_ = true;
        end_code_ = cursor.code();
        end_problem_ = cursor.problem();
        if (end_code_ != SQLITE_OK)
            end_failure_ = file_error(path, own_, fmt::format("reading table {}", RowSource<Row>::table));
        filled_.notify_one();
    }

    void refill() {
        at_ = 0;
        block_.clear();
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [&] { return done_ || !ready_.empty(); });
        if (!ready_.empty()) {
            block_ = std::move(ready_.front());
            ready_.pop_front();
            room_.notify_one();
            return;
        }
        code_ = end_code_;
        problem_ = end_problem_;
        failure_ = end_failure_;
    }

    std::optional<Cursor<Row>> here_;
    // The caller's.
    std::vector<Row> block_;
    std::size_t at_ = 0;
    int code_ = SQLITE_OK;
    std::string problem_;
    std::optional<Error> failure_;
    // The other thread's, then shared under the mutex.
    Database own_;
    std::mutex mutex_;
    std::condition_variable filled_, room_;
    std::deque<std::vector<Row>> ready_;
    bool done_ = false, stop_ = false;
    int end_code_ = SQLITE_OK;
    std::string end_problem_;
    std::optional<Error> end_failure_;
    std::thread thread_;
};

}  // namespace draftscope::storage
