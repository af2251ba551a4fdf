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
#include "storage/space_reserve.h"

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
// Enough for the rows that close a run: the pages of five tables, each once in the log and once in the file.
constexpr std::int64_t reserved_bytes = 128 << 10;

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
    std::unique_ptr<storage::SpaceReserve> reserve;
    storage::WriterLosses losses;
    std::string problem;  ///< of the transaction that failed last; writer thread
    /// After a write error, writer thread: prompts that ended and whose rows may be in the file.
    std::vector<PromptEnded> ended_prompts;

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
    bool run_closed = false;  ///< after a write error: the file says how the run ended and what it lost
    bool moved = false;       ///< the name no longer leads to the open file
    std::string rescued;
    std::string copy_to;  ///< a copy is asked for
    Status copied;
    WriterStats stats;

    std::thread thread;

    void push(Record record);
    void wait_for_room();
    bool full() const { return queued_rows + rows_under_way >= options.queue_rows; }
    bool nobody_waits() const { return closing || !stats.error.empty(); }
    Status flush();
    Status save_copy(const std::string& out);
    Status close();
    void loop();
    bool flush_wanted() const { return flush_asked > flush_done; }
    /// Writes one batch in transactions. After an error what is left of it is only counted.
    void write_batch(std::deque<Record>& batch, bool all_progress);
    std::size_t write_in_transactions(std::deque<Record>& batch, std::size_t done, std::int64_t rows_each,
                                      bool all_progress);
    void write_record(Record& record);
    bool start_run(const Record& started);
    bool begin();
    bool commit();
    /// What went wrong; "" when everything is committed.
    std::string try_commit();
    void committed_all();
    bool fail_with_db(const std::string& doing = {});
    bool fail(const std::string& what);
    void stop_writing();
    bool failed_before();
    void count_lost(const Record& record);
    void close_run(const Record* ended);
    void look_after_file();
    void write_copy();
    void finish();
    Status status() const;  ///< call with the mutex held
};

void CaptureWriter::Impl::wait_for_room() {
    if (options.when_queue_full == WhenQueueFull::drop) return;
    std::unique_lock lock(mutex);
    room.wait(lock, [&] { return !full() || nobody_waits(); });
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
        room.wait(lock, [&] { return !full() || nobody_waits(); });
    }
    if (closing) return;
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
    if (!stats.error.empty()) {
        const std::string lost =
            stats.lost_error > 0 ? fmt::format(" {} rows that came later are not in it.", stats.lost_error)
                                 : "";
        if (run_closed)
            return failed("{}: the capture is not whole: {}.{} What came before is kept", path, stats.error,
                          lost);
        return failed(
            "{}: writing the capture stopped: {}.{} What was committed before is kept; free space or check "
            "the "
            "disk, then run `draftscope check --repair {}`",
            path, stats.error, lost, path);
    }
    if (stats.lost_vocabulary > 0)
        return failed(
            "{}: the disk had no room for the vocabulary: the texts of {} tokens are not in the capture, all "
            "else is",
            path, stats.lost_vocabulary);
    return {};
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
    if (loop_ended) {  // the connection is nobody's any more
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

/// Always false, for callers to return.
bool CaptureWriter::Impl::fail(const std::string& what) {
    db.exec("ROLLBACK");
    if (rows) rows->start_again(stats.rows);
    rows_to_commit = 0;
    problem = what.empty() ? "unknown error" : what;
    return false;
}

void CaptureWriter::Impl::stop_writing() {
    const std::lock_guard lock(mutex);
    if (stats.error.empty()) stats.error = problem;
    room.notify_all();
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
    return begin_now.run() == SQLITE_DONE || fail_with_db();
}

std::string CaptureWriter::Impl::try_commit() {
    rows->flush();
    if (rows->failed()) return rows->message();
    return commit_all.run() == SQLITE_DONE ? std::string() : db.message();
}

void CaptureWriter::Impl::committed_all() {
    const std::lock_guard lock(mutex);
    rows_under_way -= rows_to_commit;
    rows_to_commit = 0;
    room.notify_all();
    stats.rows = rows->rows();
    stats.dropped_ring = retention->dropped_rows();
    ++stats.transactions;
}

bool CaptureWriter::Impl::commit() {
    if (const std::string what = try_commit(); !what.empty()) return fail(what);
    if (retention->after_commit() != SQLITE_OK) return fail_with_db("dropping the oldest steps: ");
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

/// A transaction of its own: where the disk has no room for the vocabulary, it may have some for the run and
/// its steps.
bool CaptureWriter::Impl::start_run(const Record& record) {
    const auto& started = std::get<RunStarted>(record);
    if (!begin()) return false;
    rows->write(record);
    std::string what = try_commit();
    if (!what.empty() && started.vocab && !started.vocab->rows.empty()) {
        db.exec("ROLLBACK");
        rows->start_again(stats.rows);
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

/// The records after the first `done`, in transactions of `rows_each` rows. Returns how many records are
/// committed: all, or those before an error.
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
            // A full disk: the log has room again once it is merged, and small transactions need less of it.
            problem.clear();
            db.exec("PRAGMA wal_checkpoint(RESTART)");
            done = write_in_transactions(batch, done, 1, all_progress);
        }
        if (!problem.empty()) stop_writing();
    }
    for (; done < batch.size(); ++done) count_lost(batch[done]);
    const std::lock_guard lock(mutex);
    if (!stats.error.empty()) rows_under_way = 0;
}

/// After a write error: what ends a prompt or a run is small and kept, the rest is not in the file.
void CaptureWriter::Impl::count_lost(const Record& record) {
    if (std::holds_alternative<RunEnded>(record)) return close_run(&record);
    if (const auto* ended = std::get_if<PromptEnded>(&record)) return ended_prompts.push_back(*ended);
    losses.error += storage::row_weight(record);
    const std::lock_guard lock(mutex);
    stats.lost_error = losses.error;
}

/// After a write error, with the space that was kept for it: how the run ended and what it lost.
void CaptureWriter::Impl::close_run(const Record* ended) {
    if (losses.run_id == 0 || run_closed) return;
    if (ended != nullptr && std::get<RunEnded>(*ended).run_id != losses.run_id) return;
    reserve->release();
    const auto write = [&](const auto& some) {
        bool written = begin_now.run() == SQLITE_DONE;
        if (written) some();
        written = written && try_commit().empty();
        if (!written) db.exec("ROLLBACK");
        rows->start_again(written ? rows->rows() : stats.rows);
        return written;
    };
    const auto end = [&] {
        rows->write_losses(losses);
        if (ended != nullptr) rows->write(*ended);
    };
    bool written = write(end);
    if (!written) {
        // What is in the log takes half the space in the file, and leaves the log free for more.
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
        write_batch(batch, all_progress);
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
    write_batch(nothing, true);
    const bool stopped = failed_before();
    if (stopped) {
        close_run(nullptr);
        db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    reserve->release();
    const bool indexed = db.exec(std::string("BEGIN IMMEDIATE;") + storage::index_sql) == SQLITE_OK;
    if (indexed) rows->redo_late_steps();
    const bool whole = indexed && !rows->failed();
    rows.reset();  // statements would keep the journal mode from changing
    begin_now = {};
    commit_all = {};
    if (!whole || db.exec("COMMIT") != SQLITE_OK) {
        fail_with_db("building the indexes: ");
        stop_writing();
        db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
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
    impl->reserve = std::make_unique<storage::SpaceReserve>(path, reserved_bytes);
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
