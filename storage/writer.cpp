#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "storage/capture_file.h"
#include "storage/retention.h"
#include "storage/row_writer.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

using Clock = std::chrono::steady_clock;
// Commits after this many rows or this much time. The interval is short enough for a live reader. Each
// transaction writes the last page of each table again, with cold caches; a few large transactions cost half
// as much as many small ones.
constexpr std::int64_t commit_rows = 2000;
constexpr std::chrono::milliseconds commit_interval{500};
// Records pushed together arrive within this interval.
constexpr std::chrono::milliseconds gather_interval{5};
// Minimum interval between rewrites of a growing output. Its tokens are separate rows, which are always
// written.
constexpr std::chrono::milliseconds progress_interval{500};
// Space for the rows that close a run: the pages of five tables, each once in the log and once in the file.
constexpr std::int64_t reserved_bytes = 128 << 10;

/// Recording must not delay the measured computation: this thread waits for a free core instead of preempting
/// a computing thread.
void yield_to_computation() {
    pthread_setname_np(pthread_self(), "ds-writer");
    sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

/// Returns the first unused name for saving a capture whose file was deleted or replaced.
std::string rescue_name(const std::string& path) {
    std::string name = path + ".rescued";
    std::error_code error;
    for (int i = 2; std::filesystem::exists(name, error); ++i) name = fmt::format("{}.rescued{}", path, i);
    return name;
}

class Writer final : public CaptureWriter {
  public:
    ~Writer() override { static_cast<void>(close()); }
    Status start(const std::string& path, const WriterOptions& options);

    void push(Record record) override;
    void wait_for_space() override;
    void set_unbounded_push() override {
        const std::lock_guard lock(mutex_);
        unbounded_push_ = true;
    }
    Status flush() override;
    Status close() override;
    WriterStats stats() const override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }
    const std::string& path() const override { return path_; }
    const Notes& notes() const override { return notes_; }
    bool owns_name() const override;
    void remove_file() override;

  private:
    bool full() const { return queued_rows_ + rows_in_flight_ >= options_.queue_rows; }
    /// Enough rows for a transaction, or all that the queue takes: a producer may wait for space then.
    bool enough_to_commit() const { return queued_rows_ >= commit_rows || full(); }
    bool must_not_wait() const { return closing_ || !stats_.error.empty(); }
    void loop();
    bool flush_wanted() const { return flush_requested_ > flush_done_; }
    /// Writes one batch in transactions. After an error the remaining records are only counted.
    void write_batch(std::deque<Record>& batch, bool all_progress);
    std::size_t write_in_transactions(std::deque<Record>& batch, std::size_t done, std::int64_t rows_each,
                                      bool all_progress);
    void write_record(Record& record);
    bool start_run(const Record& started);
    bool begin();
    bool commit();
    /// Returns the error; "" if everything is committed.
    std::string try_commit();
    void committed_all();
    bool fail_with_db(const std::string& doing = {});
    bool fail(const std::string& what);
    void stop_writing();
    bool failed_before();
    void count_lost(const Record& record);
    void close_run(const Record* ended);
    void check_file_moved();
    void finish();
    Status status() const;  ///< call with the mutex held

    std::string path_;
    WriterOptions options_;
    storage::Database db_;
    storage::Statement begin_transaction_, commit_all_;
    std::unique_ptr<storage::RowWriter> rows_;
    std::unique_ptr<storage::Retention> retention_;
    std::unique_ptr<storage::SpaceReserve> reserve_;
    storage::WriterLosses losses_;
    std::string problem_;  ///< error of the last failed transaction; writer thread
    /// Prompts that ended after a write error and whose rows may be in the file. Writer thread.
    std::vector<PromptEnded> ended_prompts_;

    mutable std::mutex mutex_;
    std::condition_variable work_, space_, committed_;
    std::deque<Record> queue_;
    std::int64_t queued_rows_ = 0;
    std::int64_t rows_in_flight_ = 0;  ///< taken from the queue, not committed yet
    std::int64_t rows_to_commit_ = 0;  ///< part of rows_in_flight in the open transaction; writer thread
    /// Flush tickets: a ticket is done when everything pushed before it is committed.
    std::uint64_t flush_requested_ = 0, flush_done_ = 0;
    bool unbounded_push_ = false;
    bool closing_ = false, closed_ = false;
    bool run_closed_ = false;  ///< after a write error, the end of the run and its losses were written
    bool moved_ = false;       ///< the path no longer refers to the open file
    std::string rescued_;
    Notes notes_;
    dev_t device_ = 0;  ///< of the file, with its inode
    ino_t inode_ = 0;
    WriterStats stats_;

    std::thread thread_;
};

void Writer::wait_for_space() {
    if (options_.queue_full_policy == QueueFullPolicy::drop) return;
    std::unique_lock lock(mutex_);
    space_.wait(lock, [&] { return !full() || must_not_wait(); });
}

void Writer::push(Record record) {
    if (std::holds_alternative<LiveRound>(record)) return;
    const std::int64_t weight = storage::row_weight(record);
    std::unique_lock lock(mutex_);
    if (options_.queue_full_policy == QueueFullPolicy::drop) {
        if (full() && storage::is_measurement(record)) {
            stats_.lost_queue += weight;
            return;
        }
    } else if (!unbounded_push_) {
        space_.wait(lock, [&] { return !full() || must_not_wait(); });
    }
    if (closing_) return;
    const bool enough_before = enough_to_commit();
    queue_.push_back(std::move(record));
    queued_rows_ += weight;
    if (queue_.size() == 1 || (!enough_before && enough_to_commit())) work_.notify_one();
}

Status Writer::status() const {
    if (moved_ && !rescued_.empty())
        return failed("{}: was deleted or replaced while it was recorded; all recorded data were saved as {}",
                      path_, rescued_);
    if (moved_ && !stats_.error.empty())
        return failed("{}: was deleted or replaced while it was recorded, and saving a copy failed: {}",
                      path_, stats_.error);
    if (moved_)
        return failed(
            "{}: was deleted or replaced while it was recorded. The recorded data are still available: save "
            "a copy under another name (Ctrl+S in the window); otherwise they are saved as {} when the run "
            "ends",
            path_, rescue_name(path_));
    if (!stats_.error.empty()) {
        const std::string lost =
            stats_.lost_error > 0 ? fmt::format(" Later rows are missing ({}).", stats_.lost_error) : "";
        if (run_closed_)
            return failed("{}: the capture is incomplete: {}.{} Earlier data are kept", path_, stats_.error,
                          lost);
        return failed(
            "{}: writing the capture stopped: {}.{} Earlier data are kept; free space or check the disk, "
            "then run draftscope check --repair {}",
            path_, stats_.error, lost, path_);
    }
    if (stats_.lost_vocabulary > 0)
        return failed(
            "{}: the vocabulary did not fit on the disk: the capture lacks the texts of {} tokens and has "
            "all other data",
            path_, stats_.lost_vocabulary);
    return {};
}

Status Writer::flush() {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = ++flush_requested_;
    work_.notify_one();
    committed_.wait(lock, [&] { return flush_done_ >= ticket || !stats_.error.empty() || closed_; });
    return status();
}

/// Always returns false, so that callers can return the result.
bool Writer::fail(const std::string& what) {
    db_.exec("ROLLBACK");
    if (rows_) rows_->restart_after_rollback(stats_.rows);
    rows_to_commit_ = 0;
    problem_ = what.empty() ? "unknown error" : what;
    return false;
}

void Writer::stop_writing() {
    const std::lock_guard lock(mutex_);
    if (stats_.error.empty()) stats_.error = problem_;
    space_.notify_all();
    committed_.notify_all();
}

bool Writer::fail_with_db(const std::string& doing) {
    return fail(doing + db_.message());
}

bool Writer::failed_before() {
    const std::lock_guard lock(mutex_);
    return !stats_.error.empty();
}

bool Writer::begin() {
    return begin_transaction_.run() == SQLITE_DONE || fail_with_db();
}

std::string Writer::try_commit() {
    rows_->flush();
    if (rows_->failed()) return rows_->message();
    return commit_all_.run() == SQLITE_DONE ? std::string() : db_.message();
}

void Writer::committed_all() {
    const std::lock_guard lock(mutex_);
    rows_in_flight_ -= rows_to_commit_;
    rows_to_commit_ = 0;
    space_.notify_all();
    stats_.rows = rows_->rows();
    stats_.dropped_ring = retention_->dropped_rows();
    ++stats_.transactions;
}

bool Writer::commit() {
    if (const std::string what = try_commit(); !what.empty()) return fail(what);
    if (retention_->after_commit() != SQLITE_OK) return fail_with_db("deleting the oldest steps: ");
    committed_all();
    return true;
}

void Writer::write_record(Record& record) {
    if (const auto* step = std::get_if<StepRecord>(&record)) losses_.time_ns = step->step.end_ns;
    if (std::holds_alternative<RunEnded>(record)) rows_->write_losses(losses_);
    rows_to_commit_ += storage::row_weight(record);
    if (retention_->admit(record)) {
        rows_->write(record);
        return;
    }
    losses_.limit += storage::row_weight(record);
    rows_->expect_gaps();
    const std::lock_guard lock(mutex_);
    stats_.lost_limit = losses_.limit;
}

/// Uses a separate transaction. If the disk has no space for the vocabulary, it may have some for the run and
/// its steps.
bool Writer::start_run(const Record& record) {
    const auto& started = std::get<RunStarted>(record);
    if (!begin()) return false;
    rows_->write(record);
    std::string what = try_commit();
    if (!what.empty() && started.vocab && !started.vocab->rows.empty()) {
        db_.exec("ROLLBACK");
        rows_->restart_after_rollback(stats_.rows);
        if (!begin()) return false;
        rows_->write_without_vocabulary(started);
        what = try_commit();
        if (what.empty()) losses_.vocabulary += static_cast<std::int64_t>(started.vocab->rows.size());
    }
    if (!what.empty()) return fail(what);
    losses_.run_id = started.run.id;
    losses_.time_ns = 0;
    rows_to_commit_ += storage::row_weight(record);
    committed_all();
    const std::lock_guard lock(mutex_);
    stats_.lost_vocabulary = losses_.vocabulary;
    return true;
}

/// Writes the records after the first `done` in transactions of `rows_each` rows. Returns the number of
/// committed records: all, or those before an error.
std::size_t Writer::write_in_transactions(std::deque<Record>& batch, std::size_t done, std::int64_t rows_each,
                                          bool all_progress) {
    {
        const std::lock_guard lock(mutex_);
        losses_.queue = stats_.lost_queue;
        losses_.ring = stats_.dropped_ring;
        if (losses_.queue > 0) rows_->expect_gaps();
    }
    if (!begin()) return done;
    std::int64_t rows_at_begin = rows_->rows();
    for (std::size_t i = done; i < batch.size() && !rows_->failed(); ++i) {
        const bool run = std::holds_alternative<RunStarted>(batch[i]);
        if (!run) write_record(batch[i]);
        if (!run && (rows_->failed() || rows_->rows() - rows_at_begin < rows_each)) continue;
        if (!commit()) return done;
        done = run ? i : i + 1;
        if (run && !start_run(batch[i])) return done;
        done = i + 1;
        if (!begin()) return done;
        rows_at_begin = rows_->rows();
    }
    if (all_progress) {
        rows_->write_pending_progress();
        rows_->write_losses(losses_);
    }
    return commit() ? batch.size() : done;
}

void Writer::write_batch(std::deque<Record>& batch, bool all_progress) {
    std::size_t done = 0;
    if (!failed_before()) {
        problem_.clear();
        done = write_in_transactions(batch, done, commit_rows, all_progress);
        if (!problem_.empty()) {
            // The disk is full. Merging the log frees its space, and small transactions need less of it.
            problem_.clear();
            db_.exec("PRAGMA wal_checkpoint(RESTART)");
            done = write_in_transactions(batch, done, 1, all_progress);
        }
        if (!problem_.empty()) stop_writing();
    }
    for (; done < batch.size(); ++done) count_lost(batch[done]);
    const std::lock_guard lock(mutex_);
    if (!stats_.error.empty()) rows_in_flight_ = 0;
}

/// After a write error, keeps the small records that end a prompt or a run and counts the others as lost.
void Writer::count_lost(const Record& record) {
    if (std::holds_alternative<RunEnded>(record)) return close_run(&record);
    if (const auto* ended = std::get_if<PromptEnded>(&record)) return ended_prompts_.push_back(*ended);
    losses_.error += storage::row_weight(record);
    const std::lock_guard lock(mutex_);
    stats_.lost_error = losses_.error;
}

/// After a write error, writes the run's end and its losses into the reserved space.
void Writer::close_run(const Record* ended) {
    if (losses_.run_id == 0 || run_closed_) return;
    if (ended != nullptr && std::get<RunEnded>(*ended).run_id != losses_.run_id) return;
    reserve_->release();
    const auto write = [&](const auto& some) {
        bool written = begin_transaction_.run() == SQLITE_DONE;
        if (written) some();
        written = written && try_commit().empty();
        if (!written) db_.exec("ROLLBACK");
        rows_->restart_after_rollback(written ? rows_->rows() : stats_.rows);
        return written;
    };
    const auto end = [&] {
        rows_->write_losses(losses_);
        if (ended != nullptr) rows_->write(*ended);
    };
    bool written = write(end);
    if (!written) {
        // Log pages take half the space once merged into the file, which also frees the log.
        db_.exec("PRAGMA wal_checkpoint(TRUNCATE)");
        written = write(end);
    }
    write([&] {
        for (const PromptEnded& prompt : ended_prompts_) rows_->update_prompt(prompt.prompt);
    });
    ended_prompts_.clear();
    const std::lock_guard lock(mutex_);
    stats_.rows = rows_->rows();
    run_closed_ = written && ended != nullptr;
}

/// On Linux, deleting a file only removes its name. Recording continues, and close() saves the data under
/// another name.
void Writer::check_file_moved() {
    int gone = 0;
    if (sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &gone) != SQLITE_OK || gone == 0)
        return;
    const std::lock_guard lock(mutex_);
    moved_ = true;
}

void Writer::loop() {
    yield_to_computation();
    auto next_progress = Clock::now() + progress_interval;
    auto next_commit = Clock::now() + commit_interval;
    for (;;) {
        std::deque<Record> batch;
        std::uint64_t ticket = 0;
        bool all_progress = false;
        {
            std::unique_lock lock(mutex_);
            const auto urgent = [&] { return flush_wanted() || closing_; };
            const auto something = [&] { return !queue_.empty() || urgent(); };
            if (rows_->has_pending_progress())
                work_.wait_until(lock, next_progress, something);
            else
                work_.wait(lock, something);
            // Wait until the transaction is large enough, unless a caller waits for it or the rows already
            // suffice.
            if (!enough_to_commit() && !queue_.empty())
                work_.wait_until(lock, std::max(next_commit, Clock::now() + gather_interval),
                                 [&] { return enough_to_commit() || urgent(); });
            if (queue_.empty() && closing_) break;
            batch.swap(queue_);
            rows_in_flight_ = queued_rows_;
            queued_rows_ = 0;
            ticket = flush_requested_;
            all_progress = flush_wanted() || Clock::now() >= next_progress;
        }
        write_batch(batch, all_progress);
        next_commit = Clock::now() + commit_interval;
        check_file_moved();
        if (all_progress) next_progress = Clock::now() + progress_interval;
        const std::lock_guard lock(mutex_);
        flush_done_ = std::max(flush_done_, ticket);
        committed_.notify_all();
    }
    finish();
}

void Writer::finish() {
    std::deque<Record> nothing;
    write_batch(nothing, true);
    const bool stopped = failed_before();
    if (stopped) {
        close_run(nullptr);
        db_.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    reserve_->release();
    const bool indexed = db_.exec("BEGIN IMMEDIATE;" + storage::index_sql()) == SQLITE_OK;
    if (indexed) rows_->recompute_late_steps();
    const bool whole = indexed && !rows_->failed();
    rows_.reset();  // open statements would prevent the change of the journal mode
    begin_transaction_ = {};
    commit_all_ = {};
    if (!whole || db_.exec("COMMIT") != SQLITE_OK) {
        fail_with_db("building the indexes: ");
        stop_writing();
        db_.exec("PRAGMA wal_checkpoint(TRUNCATE)");
        return;
    }
    check_file_moved();
    if (moved_) {
        const std::string out = rescue_name(path_);
        const Status copied = storage::write_then_rename(out, [&](const std::string& partial) {
            storage::remove_with_logs(partial);
            return storage::copy_database(db_, partial, out);
        });
        const std::lock_guard lock(mutex_);
        if (copied.ok())
            rescued_ = out;
        else
            stats_.error = copied.error().message;
        return;
    }
    // A reader that is still open keeps the WAL. The file is complete anyway, and the last connection cleans
    // up.
    if (db_.exec("PRAGMA wal_checkpoint(TRUNCATE)") == SQLITE_OK) db_.exec("PRAGMA journal_mode = DELETE");
}

Status Writer::close() {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) return status();
        closing_ = true;
        work_.notify_all();
        space_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    rows_.reset();
    begin_transaction_ = {};
    commit_all_ = {};
    db_.close();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    committed_.notify_all();
    return status();
}

bool Writer::owns_name() const {
    struct stat info {};
    return ::stat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

void Writer::remove_file() {
    const storage::FolderLock lock(path_);
    if (owns_name()) storage::remove_with_logs(path_);
}

Status Writer::start(const std::string& path, const WriterOptions& options) {
    const storage::FolderLock lock(path);
    DS_TRY(storage::prepare_new_capture(path, options.overwrite));
    path_ = path;
    options_ = options;
    DS_ASSIGN(db_, storage::create_capture(path, notes_));
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) device_ = info.st_dev, inode_ = info.st_ino;
    rows_ = std::make_unique<storage::RowWriter>(db_);
    begin_transaction_ = db_.prepare("BEGIN IMMEDIATE");
    commit_all_ = db_.prepare("COMMIT");
    if (rows_->failed() || !begin_transaction_ || !commit_all_)
        return failed("{}: can't be written: {}", path, db_.message());
    reserve_ = std::make_unique<storage::SpaceReserve>(path, reserved_bytes);
    retention_ = std::make_unique<storage::Retention>(db_, options);
    thread_ = std::thread([this] { loop(); });
    return {};
}

}  // namespace

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& path, bool overwrite) {
    WriterOptions options;
    options.overwrite = overwrite;
    return create(path, options);
}

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& path,
                                                             const WriterOptions& options) {
    auto writer = std::make_unique<Writer>();
    DS_TRY(writer->start(path, options));
    return std::unique_ptr<CaptureWriter>(std::move(writer));
}

}  // namespace draftscope
