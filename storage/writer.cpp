#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "storage/capture_file.h"
#include "storage/export.h"
#include "storage/retention.h"
#include "storage/row_writer.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

using Clock = std::chrono::steady_clock;
// A commit by whichever comes first: so many rows, or so long that a reader would notice.
// A transaction writes the last page of each table again, with caches that the computation has emptied: few
// large ones cost half of what many small ones do.
constexpr std::int64_t commit_rows = 2000;
constexpr std::chrono::milliseconds commit_interval{500};
// What is pushed at one go arrives within this.
constexpr std::chrono::milliseconds gather_interval{5};
// Text of a growing output is rewritten at most this often; the tokens themselves are rows and always
// written.
constexpr std::chrono::milliseconds progress_interval{500};

/// What is recorded must not hold up what is measured: this thread waits for a free core rather than taking
/// one from a thread that computes.
void yield_to_computation() {
    pthread_setname_np(pthread_self(), "ds-writer");
    sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

/// The first free name beside a capture whose own name was taken from it.
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
    storage::Statement begin_now, commit_all;
    std::unique_ptr<storage::RowWriter> rows;
    std::unique_ptr<storage::Retention> retention;
    storage::WriterLosses losses;

    std::mutex mutex;
    std::condition_variable work, room, committed;
    std::deque<Record> queue;
    std::int64_t queued_rows = 0;
    std::int64_t rows_under_way = 0;                ///< taken from the queue, not committed yet
    std::int64_t rows_to_commit = 0;                ///< of them, in the open transaction; writer thread
    std::uint64_t flush_asked = 0, flush_done = 0;  ///< tickets: all that was pushed before one is committed
    bool unbounded_push = false;
    bool closing = false, closed = false;
    bool loop_ended = false;
    bool moved = false;  ///< the name no longer leads to the open file
    std::string rescued;
    std::string copy_to;  ///< a copy is asked for
    Status copied;
    WriterStats stats;

    std::thread thread;

    void push(Record record);
    void wait_for_room();
    bool full() const { return queued_rows + rows_under_way >= options.queue_rows; }
    bool done_for() const { return closing || !stats.error.empty(); }
    Status flush();
    Status save_copy(const std::string& out);
    Status close();
    void loop();
    bool flush_wanted() const { return flush_asked > flush_done; }
    /// Writes one batch in transactions; returns false when writing failed for good.
    bool write_batch(std::deque<Record>& batch, bool all_progress);
    void write_record(Record& record);
    bool begin();
    bool commit();
    bool fail_with_db(const std::string& doing = {});
    void give_up(const std::string& what);
    void look_after_file();
    void write_copy();
    void finish();
    Status status() const;  ///< call with the mutex held
};

void CaptureWriter::Impl::wait_for_room() {
    if (options.when_queue_full == WhenQueueFull::drop) return;
    std::unique_lock lock(mutex);
    room.wait(lock, [&] { return !full() || done_for(); });
}

void CaptureWriter::Impl::push(Record record) {
    if (std::holds_alternative<LiveRound>(record)) return;
    const std::int64_t weight = storage::row_weight(record);
    std::unique_lock lock(mutex);
    if (options.when_queue_full == WhenQueueFull::drop) {
        if (full() && storage::is_measurement(record)) {
            stats.lost_queue += weight;
            return;
        }
    } else if (!unbounded_push) {
        room.wait(lock, [&] { return !full() || done_for(); });
    }
    if (done_for()) return;
    queue.push_back(std::move(record));
    queued_rows += weight;
    const bool filled = queued_rows >= commit_rows && queued_rows - weight < commit_rows;
    if (queue.size() == 1 || filled) work.notify_one();
}

Status CaptureWriter::Impl::status() const {
    if (moved && !rescued.empty())
        return failed(
            "{}: was deleted or replaced while it was recorded; everything recorded was saved as {}", path,
            rescued);
    if (moved && stats.error.empty())
        return failed(
            "{}: was deleted or replaced while it was recorded. What was recorded is still held: save a copy "
            "under another name (Ctrl+S in the window); at its end the run saves one as {}",
            path, rescue_name(path));
    if (stats.error.empty()) return {};
    return failed(
        "{}: writing the capture stopped: {}. What was committed before is kept; free space or check the "
        "disk, then run `draftscope check --repair {}`",
        path, stats.error, path);
}

Status CaptureWriter::Impl::flush() {
    std::unique_lock lock(mutex);
    const std::uint64_t ticket = ++flush_asked;
    work.notify_one();
    committed.wait(lock, [&] { return flush_done >= ticket || !stats.error.empty() || closed; });
    return status();
}

Status CaptureWriter::Impl::save_copy(const std::string& out) {
    DS_TRY(storage::check_new_file(out));
    std::unique_lock lock(mutex);
    if (closed) return failed("{}: is closed; export it instead", path);
    committed.wait(lock, [&] { return copy_to.empty(); });
    copy_to = out;
    copied = {};
    work.notify_one();
    if (loop_ended) {  // after an error: the connection is nobody's any more
        write_copy();
        copy_to.clear();
    }
    committed.wait(lock, [&] { return copy_to.empty() || copy_to != out; });
    return copied;
}

/// On the writer thread with the mutex free, or on the caller's when the thread has ended.
void CaptureWriter::Impl::write_copy() {
    const std::string partial = storage::partial_name(copy_to);
    std::error_code error;
    std::filesystem::remove(partial, error);
    if (db.exec("VACUUM INTO " + storage::sql_quoted(partial, '\'')) != SQLITE_OK) {
        copied =
            failed("{}: can't be written: {}; free space or choose another place", copy_to, db.message());
        std::filesystem::remove(partial, error);
    } else {
        copied = storage::publish(partial, copy_to);
    }
}

void CaptureWriter::Impl::give_up(const std::string& what) {
    db.exec("ROLLBACK");
    const std::lock_guard lock(mutex);
    stats.error = what.empty() ? "unknown error" : what;
    queue.clear();
    queued_rows = rows_under_way = 0;
    room.notify_all();
    committed.notify_all();
}

bool CaptureWriter::Impl::fail_with_db(const std::string& doing) {
    give_up(doing + db.message());
    return false;
}

bool CaptureWriter::Impl::begin() {
    return begin_now.run() == SQLITE_DONE || fail_with_db();
}

bool CaptureWriter::Impl::commit() {
    rows->flush();
    if (rows->failed()) {
        give_up(rows->message());
        return false;
    }
    if (commit_all.run() != SQLITE_DONE) return fail_with_db();
    if (retention->after_commit() != SQLITE_OK) return fail_with_db("dropping the oldest steps: ");
    const std::lock_guard lock(mutex);
    rows_under_way -= rows_to_commit;
    rows_to_commit = 0;
    room.notify_all();
    stats.rows = rows->rows();
    stats.dropped_ring = retention->dropped_rows();
    ++stats.transactions;
    return true;
}

void CaptureWriter::Impl::write_record(Record& record) {
    if (const auto* started = std::get_if<RunStarted>(&record)) losses.run_id = started->run.id;
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

bool CaptureWriter::Impl::write_batch(std::deque<Record>& batch, bool all_progress) {
    {
        const std::lock_guard lock(mutex);
        losses.queue = stats.lost_queue;
        losses.ring = stats.dropped_ring;
        if (losses.queue > 0) rows->expect_gaps();
    }
    if (!begin()) return false;
    std::int64_t rows_at_begin = rows->rows();
    for (Record& record : batch) {
        write_record(record);
        if (rows->failed()) break;
        if (rows->rows() - rows_at_begin < commit_rows) continue;
        if (!commit() || !begin()) return false;
        rows_at_begin = rows->rows();
    }
    if (all_progress) {
        rows->write_pending_progress();
        rows->write_losses(losses);
    }
    return commit();
}

/// Deleting a file on Linux takes its name only: recording goes on, and the end saves it under another.
void CaptureWriter::Impl::look_after_file() {
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
        bool copy = false;
        {
            std::unique_lock lock(mutex);
            const auto urgent = [&] { return flush_wanted() || closing || !copy_to.empty(); };
            const auto something = [&] { return !queue.empty() || urgent(); };
            if (rows->has_pending_progress())
                work.wait_until(lock, next_progress, something);
            else
                work.wait(lock, something);
            // Let a transaction fill up, unless someone waits for it or the rows already suffice.
            if (queued_rows < commit_rows && !queue.empty())
                work.wait_until(lock, std::max(next_commit, Clock::now() + gather_interval),
                                [&] { return queued_rows >= commit_rows || urgent(); });
            copy = !copy_to.empty();
            if (queue.empty() && closing && !copy) break;
            batch.swap(queue);
            rows_under_way = queued_rows;
            queued_rows = 0;
            ticket = flush_asked;
            all_progress = flush_wanted() || copy || Clock::now() >= next_progress;
        }
        if (!write_batch(batch, all_progress)) {
            const std::lock_guard lock(mutex);
            loop_ended = true;
            if (!copy_to.empty()) copied = status();
            copy_to.clear();
            committed.notify_all();
            return;
        }
        next_commit = Clock::now() + commit_interval;
        look_after_file();
        if (copy) write_copy();
        if (all_progress) next_progress = Clock::now() + progress_interval;
        const std::lock_guard lock(mutex);
        flush_done = std::max(flush_done, ticket);
        if (copy) copy_to.clear();
        committed.notify_all();
    }
    finish();
    const std::lock_guard lock(mutex);
    loop_ended = true;
}

void CaptureWriter::Impl::finish() {
    std::deque<Record> nothing;
    if (!write_batch(nothing, true)) return;
    const bool indexed = db.exec(std::string("BEGIN IMMEDIATE;") + storage::index_sql) == SQLITE_OK;
    if (indexed) rows->redo_late_steps();
    const bool whole = indexed && !rows->failed();
    rows.reset();  // statements would keep the journal mode from changing
    begin_now = {};
    commit_all = {};
    if (!whole || db.exec("COMMIT") != SQLITE_OK) {
        fail_with_db("building the indexes: ");
        return;
    }
    look_after_file();
    if (moved) {
        copy_to = rescue_name(path);
        write_copy();
        const std::lock_guard lock(mutex);
        if (copied.ok())
            rescued = copy_to;
        else
            stats.error = copied.error().message;
        return;
    }
    // A reader that is still open keeps the WAL; the file is whole all the same, and the last to leave cleans
    // up.
    if (db.exec("PRAGMA wal_checkpoint(TRUNCATE)") == SQLITE_OK) db.exec("PRAGMA journal_mode = DELETE");
}

Status CaptureWriter::Impl::close() {
    {
        const std::lock_guard lock(mutex);
        if (closed) return status();
        closing = true;
        work.notify_all();
        room.notify_all();
    }
    if (thread.joinable()) thread.join();
    rows.reset();
    begin_now = {};
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
    DS_TRY(storage::prepare_new_capture(path, options.overwrite));
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    impl->options = options;
    std::string message;
    impl->db = storage::open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message);
    if (!impl->db) return bad_input("{}: can't be created: {}; choose another place", path, message);
    const storage::Database& db = impl->db;
    // The schema goes in before the log is switched on, so that the main file alone says what it is.
    if (db.exec("BEGIN IMMEDIATE") != SQLITE_OK || storage::create_schema(db) != SQLITE_OK ||
        db.exec("COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
                // They guard the file against others' writing; what we write comes from our enums and flags.
                "PRAGMA ignore_check_constraints = ON") != SQLITE_OK)
        return failed("{}: can't be written: {}; free space or choose another place", path, db.message());
    impl->rows = std::make_unique<storage::RowWriter>(db);
    impl->begin_now = db.prepare("BEGIN IMMEDIATE");
    impl->commit_all = db.prepare("COMMIT");
    if (impl->rows->failed() || !impl->begin_now || !impl->commit_all)
        return failed("{}: can't be written: {}", path, db.message());
    impl->retention = std::make_unique<storage::Retention>(impl->db, options);
    Impl* raw = impl.get();
    impl->thread = std::thread([raw] { raw->loop(); });
    return std::unique_ptr<CaptureWriter>(new CaptureWriter(std::move(impl)));
}

CaptureWriter::~CaptureWriter() {
    if (impl_) static_cast<void>(impl_->close());
}

void CaptureWriter::push(Record record) {
    impl_->push(std::move(record));
}
void CaptureWriter::wait_for_room() {
    impl_->wait_for_room();
}
void CaptureWriter::set_unbounded_push() {
    const std::lock_guard lock(impl_->mutex);
    impl_->unbounded_push = true;
}
Status CaptureWriter::save_copy(const std::string& out) {
    return impl_->save_copy(out);
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
