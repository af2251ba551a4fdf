#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "storage/capture_file.h"
#include "storage/row_writer.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

using Clock = std::chrono::steady_clock;
// A commit by whichever comes first: so many rows, or so long that a reader would notice.
constexpr std::int64_t commit_rows = 1000;
constexpr std::chrono::milliseconds commit_interval{100};
// Text of a growing output is rewritten at most this often; the tokens themselves are rows and always
// written.
constexpr std::chrono::milliseconds progress_interval{500};
constexpr std::int64_t queue_rows = 65536;

std::int64_t row_weight(const Record& record) {
    if (const auto* step = std::get_if<StepRecord>(&record)) {
        std::size_t n = 1 + step->spans.size();
        for (const RoundRecord& round : step->rounds)
            n += 1 + round.nodes.size() + round.tops.size() + round.tokens.size() + round.head_evals.size();
        return static_cast<std::int64_t>(n);
    }
    if (const auto* ops = std::get_if<std::vector<GpuOpRow>>(&record))
        return 1 + static_cast<std::int64_t>(ops->size());
    if (const auto* ranges = std::get_if<std::vector<NvtxRangeRow>>(&record))
        return 1 + static_cast<std::int64_t>(ranges->size());
    if (const auto* spans = std::get_if<SpansRecorded>(&record))
        return 1 + static_cast<std::int64_t>(spans->spans.size());
    return 1;
}

/// A file that a connection of this or another process has open must not be pulled from under it.
bool in_use(const std::string& path) {
    std::string message;
    const storage::Database db = storage::open_database(path, SQLITE_OPEN_READWRITE, &message);
    if (!db) return false;
    sqlite3_busy_timeout(db.get(), 0);
    db.exec("PRAGMA locking_mode = EXCLUSIVE");
    return (db.exec("BEGIN EXCLUSIVE; COMMIT") & 0xff) == SQLITE_BUSY;
}

/// The application id in the header, whatever state the rest of the file and its logs are in.
bool bears_our_mark(const std::string& path) {
    unsigned char header[72] = {};
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(header), sizeof header)) return false;
    std::int32_t id = 0;
    for (int i = 68; i < 72; ++i) id = id << 8 | header[i];
    return id == capture_application_id;
}

Status prepare_path(const std::string& path, bool overwrite) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path file(path);
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (path.empty())
        return bad_input("no file name given for the capture; name one, for example run.dscope");
    if (!fs::is_directory(folder, error))
        return bad_input("{}: folder {} does not exist; create it or choose another place", path,
                         folder.string());
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        return bad_input("{}: folder {} is not writable ({}); choose another place", path, folder.string(),
                         std::strerror(errno));
    const fs::file_status status = fs::status(file, error);
    if (fs::exists(status)) {
        if (!fs::is_regular_file(status)) return bad_input("{}: is not a file; choose another name", path);
        if (!overwrite) return bad_input("{}: file exists; choose another name or give --overwrite", path);
        if (fs::file_size(file, error) > 0 && !bears_our_mark(path))
            return bad_input("{}: is no capture of ours, so it is not replaced; choose another name", path);
        if (in_use(path)) return bad_input("{}: is open, perhaps being recorded; choose another name", path);
    }
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
        fs::remove(path + suffix, error);
        if (error) return bad_input("{}{}: can't be replaced: {}", path, suffix, error.message());
    }
    return {};
}

}  // namespace

struct CaptureWriter::Impl {
    std::string path;
    storage::Database db;
    std::unique_ptr<storage::RowWriter> rows;

    std::mutex mutex;
    std::condition_variable work, room, committed;
    std::deque<Record> queue;
    std::int64_t queued_rows = 0;
    std::uint64_t flush_asked = 0, flush_done = 0;  ///< tickets: all that was pushed before one is committed
    bool closing = false, closed = false;
    WriterStats stats;

    std::thread thread;

    void push(Record record);
    Status flush();
    Status close();
    void loop();
    bool flush_wanted() const { return flush_asked > flush_done; }
    /// Writes one batch in transactions; returns false when writing failed for good.
    bool write_batch(std::deque<Record>& batch, bool all_progress);
    bool begin();
    bool commit();
    void give_up(const std::string& what);
    void finish();
    Status status() const;  ///< call with the mutex held
};

void CaptureWriter::Impl::push(Record record) {
    if (std::holds_alternative<LiveRound>(record)) return;
    const std::int64_t weight = row_weight(record);
    std::unique_lock lock(mutex);
    room.wait(lock, [&] { return queued_rows < queue_rows || closing || !stats.error.empty(); });
    if (closing || !stats.error.empty()) return;
    queue.push_back(std::move(record));
    queued_rows += weight;
    const bool filled = queued_rows >= commit_rows && queued_rows - weight < commit_rows;
    if (queue.size() == 1 || filled) work.notify_one();
}

Status CaptureWriter::Impl::status() const {
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

void CaptureWriter::Impl::give_up(const std::string& what) {
    db.exec("ROLLBACK");
    const std::lock_guard lock(mutex);
    stats.error = what.empty() ? "unknown error" : what;
    queue.clear();
    queued_rows = 0;
    room.notify_all();
    committed.notify_all();
}

bool CaptureWriter::Impl::begin() {
    if (db.exec("BEGIN IMMEDIATE") == SQLITE_OK) return true;
    give_up(db.message());
    return false;
}

bool CaptureWriter::Impl::commit() {
    if (db.exec("COMMIT") != SQLITE_OK) {
        give_up(db.message());
        return false;
    }
    const std::lock_guard lock(mutex);
    stats.rows = rows->rows();
    ++stats.transactions;
    return true;
}

bool CaptureWriter::Impl::write_batch(std::deque<Record>& batch, bool all_progress) {
    if (!begin()) return false;
    std::int64_t rows_at_begin = rows->rows();
    for (Record& record : batch) {
        rows->write(record);
        if (rows->failed()) break;
        if (rows->rows() - rows_at_begin < commit_rows) continue;
        if (!commit() || !begin()) return false;
        rows_at_begin = rows->rows();
    }
    if (all_progress) rows->write_pending_progress();
    if (rows->failed()) {
        give_up(rows->message());
        return false;
    }
    return commit();
}

void CaptureWriter::Impl::loop() {
    auto next_progress = Clock::now() + progress_interval;
    for (;;) {
        std::deque<Record> batch;
        std::uint64_t ticket = 0;
        bool all_progress = false;
        {
            std::unique_lock lock(mutex);
            const auto something = [&] { return !queue.empty() || flush_wanted() || closing; };
            if (rows->has_pending_progress())
                work.wait_until(lock, next_progress, something);
            else
                work.wait(lock, something);
            // Let a transaction fill up, unless someone waits for it or the rows already suffice.
            if (queued_rows < commit_rows && !queue.empty())
                work.wait_for(lock, commit_interval,
                              [&] { return queued_rows >= commit_rows || flush_wanted() || closing; });
            if (queue.empty() && closing) break;
            batch.swap(queue);
            queued_rows = 0;
            ticket = flush_asked;
            all_progress = flush_wanted() || Clock::now() >= next_progress;
            room.notify_all();
        }
        if (!write_batch(batch, all_progress)) return;
        if (all_progress) next_progress = Clock::now() + progress_interval;
        const std::lock_guard lock(mutex);
        flush_done = std::max(flush_done, ticket);
        committed.notify_all();
    }
    finish();
}

void CaptureWriter::Impl::finish() {
    if (!begin()) return;
    rows->write_pending_progress();
    if (rows->failed()) return give_up(rows->message());
    if (!commit()) return;
    rows.reset();  // its statements would keep the journal mode from changing
    if (db.exec(std::string("BEGIN IMMEDIATE;") + storage::index_sql + "COMMIT") != SQLITE_OK)
        return give_up("building the indexes: " + db.message());
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
    db.close();
    const std::lock_guard lock(mutex);
    closed = true;
    committed.notify_all();
    return status();
}

CaptureWriter::CaptureWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(const std::string& path, bool overwrite) {
    DS_TRY(prepare_path(path, overwrite));
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    std::string message;
    impl->db = storage::open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message);
    if (!impl->db) return bad_input("{}: can't be created: {}; choose another place", path, message);
    const storage::Database& db = impl->db;
    // The schema goes in before the log is switched on, so that the main file alone says what it is.
    if (db.exec("BEGIN IMMEDIATE") != SQLITE_OK || storage::create_schema(db) != SQLITE_OK ||
        db.exec("COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL") != SQLITE_OK)
        return failed("{}: can't be written: {}; free space or choose another place", path, db.message());
    impl->rows = std::make_unique<storage::RowWriter>(db);
    if (impl->rows->failed()) return failed("{}: can't be written: {}", path, impl->rows->message());
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
