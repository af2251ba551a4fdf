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

}  // namespace

struct CaptureWriter::Impl {
    std::string path;
    WriterOptions options;
    storage::Database db;
    storage::Statement begin_transaction, commit_all;
    std::unique_ptr<storage::RowWriter> rows;
    std::unique_ptr<storage::Retention> retention;
    std::unique_ptr<storage::SpaceReserve> reserve;
    storage::WriterLosses losses;
    std::string problem;  ///< error of the last failed transaction; writer thread
    /// Prompts that ended after a write error and whose rows may be in the file. Writer thread.
    std::vector<PromptEnded> ended_prompts;

    std::mutex mutex;
    std::condition_variable work, space, committed;
    std::deque<Record> queue;
    std::int64_t queued_rows = 0;
    std::int64_t rows_in_flight = 0;  ///< taken from the queue, not committed yet
    std::int64_t rows_to_commit = 0;  ///< part of rows_in_flight in the open transaction; writer thread
    /// Flush tickets: a ticket is done when everything pushed before it is committed.
    std::uint64_t flush_requested = 0, flush_done = 0;
    bool unbounded_push = false;
    bool closing = false, closed = false;
    bool run_closed = false;  ///< after a write error, the end of the run and its losses were written
    bool moved = false;       ///< the path no longer refers to the open file
    std::string rescued;
    Notes notes;
    dev_t device = 0;  ///< of the file, with its inode
    ino_t inode = 0;
    WriterStats stats;

    std::thread thread;

    void push(Record record);
    void wait_for_space();
    bool full() const { return queued_rows + rows_in_flight >= options.queue_rows; }
    /// Enough rows for a transaction, or all that the queue takes: a producer may wait for space then.
    bool enough_to_commit() const { return queued_rows >= commit_rows || full(); }
    bool must_not_wait() const { return closing || !stats.error.empty(); }
    Status flush();
    Status close();
    void loop();
    bool flush_wanted() const { return flush_requested > flush_done; }
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
    Status write_copy(const std::string& out);
    void finish();
    Status status() const;  ///< call with the mutex held
};

void CaptureWriter::Impl::wait_for_space() {
    if (options.queue_full_policy == QueueFullPolicy::drop) return;
    std::unique_lock lock(mutex);
    space.wait(lock, [&] { return !full() || must_not_wait(); });
}

void CaptureWriter::Impl::push(Record record) {
    if (std::holds_alternative<LiveRound>(record)) return;
    const std::int64_t weight = storage::row_weight(record);
    std::unique_lock lock(mutex);
    if (options.queue_full_policy == QueueFullPolicy::drop) {
        if (full() && storage::is_measurement(record)) {
            stats.lost_queue += weight;
            return;
        }
    } else if (!unbounded_push) {
        space.wait(lock, [&] { return !full() || must_not_wait(); });
    }
    if (closing) return;
    const bool enough_before = enough_to_commit();
    queue.push_back(std::move(record));
    queued_rows += weight;
    if (queue.size() == 1 || (!enough_before && enough_to_commit())) work.notify_one();
}

Status CaptureWriter::Impl::status() const {
    if (moved && !rescued.empty())
        return failed("{}: was deleted or replaced while it was recorded; all recorded data were saved as {}",
                      path, rescued);
    if (moved && !stats.error.empty())
        return failed("{}: was deleted or replaced while it was recorded, and saving a copy failed: {}", path,
                      stats.error);
    if (moved)
        return failed(
            "{}: was deleted or replaced while it was recorded. The recorded data are still available: save "
            "a copy under another name (Ctrl+S in the window); otherwise they are saved as {} when the run "
            "ends",
            path, rescue_name(path));
    if (!stats.error.empty()) {
        const std::string lost =
            stats.lost_error > 0 ? fmt::format(" Later rows are missing ({}).", stats.lost_error) : "";
        if (run_closed)
            return failed("{}: the capture is incomplete: {}.{} Earlier data are kept", path, stats.error,
                          lost);
        return failed(
            "{}: writing the capture stopped: {}.{} Earlier data are kept; free space or check the disk, "
            "then run draftscope check --repair {}",
            path, stats.error, lost, path);
    }
    if (stats.lost_vocabulary > 0)
        return failed(
            "{}: the vocabulary did not fit on the disk: the capture lacks the texts of {} tokens and has "
            "all other data",
            path, stats.lost_vocabulary);
    return {};
}

Status CaptureWriter::Impl::flush() {
    std::unique_lock lock(mutex);
    const std::uint64_t ticket = ++flush_requested;
    work.notify_one();
    committed.wait(lock, [&] { return flush_done >= ticket || !stats.error.empty() || closed; });
    return status();
}

/// Runs on the writer thread at its end.
Status CaptureWriter::Impl::write_copy(const std::string& out) {
    const std::string partial = storage::partial_name(out);
    std::error_code error;
    std::filesystem::remove(partial, error);
    if (db.exec("VACUUM INTO " + storage::sql_quoted(partial, '\'')) == SQLITE_OK)
        return storage::publish(partial, out);
    std::filesystem::remove(partial, error);
    return failed("{}: can't be written: {}; free space or choose another folder", out, db.message());
}

/// Always returns false, so that callers can return the result.
bool CaptureWriter::Impl::fail(const std::string& what) {
    db.exec("ROLLBACK");
    if (rows) rows->restart_after_rollback(stats.rows);
    rows_to_commit = 0;
    problem = what.empty() ? "unknown error" : what;
    return false;
}

void CaptureWriter::Impl::stop_writing() {
    const std::lock_guard lock(mutex);
    if (stats.error.empty()) stats.error = problem;
    space.notify_all();
    committed.notify_all();
}

bool CaptureWriter::Impl::fail_with_db(const std::string& doing) {
    return fail(doing + db.message());
}

bool CaptureWriter::Impl::failed_before() {
    const std::lock_guard lock(mutex);
    return !stats.error.empty();
}

bool CaptureWriter::Impl::begin() {
    return begin_transaction.run() == SQLITE_DONE || fail_with_db();
}

std::string CaptureWriter::Impl::try_commit() {
    rows->flush();
    if (rows->failed()) return rows->message();
    return commit_all.run() == SQLITE_DONE ? std::string() : db.message();
}

void CaptureWriter::Impl::committed_all() {
    const std::lock_guard lock(mutex);
    rows_in_flight -= rows_to_commit;
    rows_to_commit = 0;
    space.notify_all();
    stats.rows = rows->rows();
    stats.dropped_ring = retention->dropped_rows();
    ++stats.transactions;
}

bool CaptureWriter::Impl::commit() {
    if (const std::string what = try_commit(); !what.empty()) return fail(what);
    if (retention->after_commit() != SQLITE_OK) return fail_with_db("deleting the oldest steps: ");
    committed_all();
    return true;
}

void CaptureWriter::Impl::write_record(Record& record) {
    if (const auto* step = std::get_if<StepRecord>(&record)) losses.time_ns = step->step.end_ns;
    if (std::holds_alternative<RunEnded>(record)) rows->write_losses(losses);
    rows_to_commit += storage::row_weight(record);
    if (retention->admit(record)) {
        rows->write(record);
        return;
    }
    losses.limit += storage::row_weight(record);
    rows->expect_gaps();
    const std::lock_guard lock(mutex);
    stats.lost_limit = losses.limit;
}

/// Uses a separate transaction. If the disk has no space for the vocabulary, it may have some for the run and
/// its steps.
bool CaptureWriter::Impl::start_run(const Record& record) {
    const auto& started = std::get<RunStarted>(record);
    if (!begin()) return false;
    rows->write(record);
    std::string what = try_commit();
    if (!what.empty() && started.vocab && !started.vocab->rows.empty()) {
        db.exec("ROLLBACK");
        rows->restart_after_rollback(stats.rows);
        if (!begin()) return false;
        rows->write_without_vocabulary(started);
        what = try_commit();
        if (what.empty()) losses.vocabulary += static_cast<std::int64_t>(started.vocab->rows.size());
    }
    if (!what.empty()) return fail(what);
    losses.run_id = started.run.id;
    losses.time_ns = 0;
    rows_to_commit += storage::row_weight(record);
    committed_all();
    const std::lock_guard lock(mutex);
    stats.lost_vocabulary = losses.vocabulary;
    return true;
}

/// Writes the records after the first `done` in transactions of `rows_each` rows. Returns the number of
/// committed records: all, or those before an error.
std::size_t CaptureWriter::Impl::write_in_transactions(std::deque<Record>& batch, std::size_t done,
                                                       std::int64_t rows_each, bool all_progress) {
    {
        const std::lock_guard lock(mutex);
        losses.queue = stats.lost_queue;
        losses.ring = stats.dropped_ring;
        if (losses.queue > 0) rows->expect_gaps();
    }
    if (!begin()) return done;
    std::int64_t rows_at_begin = rows->rows();
    for (std::size_t i = done; i < batch.size() && !rows->failed(); ++i) {
        const bool run = std::holds_alternative<RunStarted>(batch[i]);
        if (!run) write_record(batch[i]);
        if (!run && (rows->failed() || rows->rows() - rows_at_begin < rows_each)) continue;
        if (!commit()) return done;
        done = run ? i : i + 1;
        if (run && !start_run(batch[i])) return done;
        done = i + 1;
        if (!begin()) return done;
        rows_at_begin = rows->rows();
    }
    if (all_progress) {
        rows->write_pending_progress();
        rows->write_losses(losses);
    }
    return commit() ? batch.size() : done;
}

void CaptureWriter::Impl::write_batch(std::deque<Record>& batch, bool all_progress) {
    std::size_t done = 0;
    if (!failed_before()) {
        problem.clear();
        done = write_in_transactions(batch, done, commit_rows, all_progress);
        if (!problem.empty()) {
            // The disk is full. Merging the log frees its space, and small transactions need less of it.
            problem.clear();
            db.exec("PRAGMA wal_checkpoint(RESTART)");
            done = write_in_transactions(batch, done, 1, all_progress);
        }
        if (!problem.empty()) stop_writing();
    }
    for (; done < batch.size(); ++done) count_lost(batch[done]);
    const std::lock_guard lock(mutex);
    if (!stats.error.empty()) rows_in_flight = 0;
}

/// After a write error, keeps the small records that end a prompt or a run and counts the others as lost.
void CaptureWriter::Impl::count_lost(const Record& record) {
    if (std::holds_alternative<RunEnded>(record)) return close_run(&record);
    if (const auto* ended = std::get_if<PromptEnded>(&record)) return ended_prompts.push_back(*ended);
    losses.error += storage::row_weight(record);
    const std::lock_guard lock(mutex);
    stats.lost_error = losses.error;
}

/// After a write error, writes the run's end and its losses into the reserved space.
void CaptureWriter::Impl::close_run(const Record* ended) {
    if (losses.run_id == 0 || run_closed) return;
    if (ended != nullptr && std::get<RunEnded>(*ended).run_id != losses.run_id) return;
    reserve->release();
    const auto write = [&](const auto& some) {
        bool written = begin_transaction.run() == SQLITE_DONE;
        if (written) some();
        written = written && try_commit().empty();
        if (!written) db.exec("ROLLBACK");
        rows->restart_after_rollback(written ? rows->rows() : stats.rows);
        return written;
    };
    const auto end = [&] {
        rows->write_losses(losses);
        if (ended != nullptr) rows->write(*ended);
    };
    bool written = write(end);
    if (!written) {
        // Log pages take half the space once merged into the file, which also frees the log.
        db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
        written = write(end);
    }
    write([&] {
        for (const PromptEnded& prompt : ended_prompts) rows->update_prompt(prompt.prompt);
    });
    ended_prompts.clear();
    const std::lock_guard lock(mutex);
    stats.rows = rows->rows();
    run_closed = written && ended != nullptr;
}

/// On Linux, deleting a file only removes its name. Recording continues, and close() saves the data under
/// another name.
void CaptureWriter::Impl::check_file_moved() {
    int gone = 0;
    if (sqlite3_file_control(db.get(), "main", SQLITE_FCNTL_HAS_MOVED, &gone) != SQLITE_OK || gone == 0)
        return;
    const std::lock_guard lock(mutex);
    moved = true;
}

void CaptureWriter::Impl::loop() {
    yield_to_computation();
    auto next_progress = Clock::now() + progress_interval;
    auto next_commit = Clock::now() + commit_interval;
    for (;;) {
        std::deque<Record> batch;
        std::uint64_t ticket = 0;
        bool all_progress = false;
        {
            std::unique_lock lock(mutex);
            const auto urgent = [&] { return flush_wanted() || closing; };
            const auto something = [&] { return !queue.empty() || urgent(); };
            if (rows->has_pending_progress())
                work.wait_until(lock, next_progress, something);
            else
                work.wait(lock, something);
            // Wait until the transaction is large enough, unless a caller waits for it or the rows already
            // suffice.
            if (!enough_to_commit() && !queue.empty())
                work.wait_until(lock, std::max(next_commit, Clock::now() + gather_interval),
                                [&] { return enough_to_commit() || urgent(); });
            if (queue.empty() && closing) break;
            batch.swap(queue);
            rows_in_flight = queued_rows;
            queued_rows = 0;
            ticket = flush_requested;
            all_progress = flush_wanted() || Clock::now() >= next_progress;
        }
        write_batch(batch, all_progress);
        next_commit = Clock::now() + commit_interval;
        check_file_moved();
        if (all_progress) next_progress = Clock::now() + progress_interval;
        const std::lock_guard lock(mutex);
        flush_done = std::max(flush_done, ticket);
        committed.notify_all();
    }
    finish();
}

void CaptureWriter::Impl::finish() {
    std::deque<Record> nothing;
    write_batch(nothing, true);
    const bool stopped = failed_before();
    if (stopped) {
        close_run(nullptr);
        db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    reserve->release();
    const bool indexed = db.exec("BEGIN IMMEDIATE;" + storage::index_sql()) == SQLITE_OK;
    if (indexed) rows->recompute_late_steps();
    const bool whole = indexed && !rows->failed();
    rows.reset();  // open statements would prevent the change of the journal mode
    begin_transaction = {};
    commit_all = {};
    if (!whole || db.exec("COMMIT") != SQLITE_OK) {
        fail_with_db("building the indexes: ");
        stop_writing();
        db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
        return;
    }
    check_file_moved();
    if (moved) {
        const std::string out = rescue_name(path);
        const Status copied = write_copy(out);
        const std::lock_guard lock(mutex);
        if (copied.ok())
            rescued = out;
        else
            stats.error = copied.error().message;
        return;
    }
    // A reader that is still open keeps the WAL. The file is complete anyway, and the last connection cleans
    // up.
    if (db.exec("PRAGMA wal_checkpoint(TRUNCATE)") == SQLITE_OK) db.exec("PRAGMA journal_mode = DELETE");
}

Status CaptureWriter::Impl::close() {
    {
        const std::lock_guard lock(mutex);
        if (closed) return status();
        closing = true;
        work.notify_all();
        space.notify_all();
    }
    if (thread.joinable()) thread.join();
    rows.reset();
    begin_transaction = {};
    commit_all = {};
    db.close();
    const std::lock_guard lock(mutex);
    closed = true;
    committed.notify_all();
    return status();
}

CaptureWriter::CaptureWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& path, bool overwrite) {
    WriterOptions options;
    options.overwrite = overwrite;
    return create(path, options);
}

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& path,
                                                             const WriterOptions& options) {
    const storage::FolderLock lock(path);
    DS_TRY(storage::prepare_new_capture(path, options.overwrite));
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    impl->options = options;
    DS_ASSIGN(impl->db, storage::create_capture(path, impl->notes));
    const storage::Database& db = impl->db;
    struct stat info {};
    if (stat(path.c_str(), &info) == 0) impl->device = info.st_dev, impl->inode = info.st_ino;
    impl->rows = std::make_unique<storage::RowWriter>(db);
    impl->begin_transaction = db.prepare("BEGIN IMMEDIATE");
    impl->commit_all = db.prepare("COMMIT");
    if (impl->rows->failed() || !impl->begin_transaction || !impl->commit_all)
        return failed("{}: can't be written: {}", path, db.message());
    impl->reserve = std::make_unique<storage::SpaceReserve>(path, reserved_bytes);
    impl->retention = std::make_unique<storage::Retention>(impl->db, options);
    Impl* raw = impl.get();
    impl->thread = std::thread([raw] { raw->loop(); });
    return std::unique_ptr<CaptureWriter>(new CaptureWriter(std::move(impl)));
}

const Notes& CaptureWriter::notes() const {
    return impl_->notes;
}

bool CaptureWriter::owns_name() const {
    struct stat info {};
    return stat(impl_->path.c_str(), &info) == 0 && info.st_dev == impl_->device &&
           info.st_ino == impl_->inode;
}

void CaptureWriter::remove_file() {
    const storage::FolderLock lock(impl_->path);
    if (!owns_name()) return;
    std::error_code ignored;
    for (const char* suffix : storage::file_suffixes) std::filesystem::remove(impl_->path + suffix, ignored);
}

CaptureWriter::~CaptureWriter() {
    if (impl_) static_cast<void>(impl_->close());
}

void CaptureWriter::push(Record record) {
    impl_->push(std::move(record));
}
void CaptureWriter::wait_for_space() {
    impl_->wait_for_space();
}
void CaptureWriter::set_unbounded_push() {
    const std::lock_guard lock(impl_->mutex);
    impl_->unbounded_push = true;
}
Status CaptureWriter::flush() {
    return impl_->flush();
}
Status CaptureWriter::close() {
    return impl_->close();
}
WriterStats CaptureWriter::stats() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->stats;
}
const std::string& CaptureWriter::path() const {
    return impl_->path;
}

}  // namespace draftscope
