#include "storage/span_outlines.h"

#include <pthread.h>

#include <limits>
#include <utility>

#include "capture/queries.h"
#include "storage/row_reader.h"

namespace draftscope::storage {

namespace {

constexpr int columns = 9;
// Reads by rowid: no index covers all columns, so SQLite scans the table in id order. add() checks that.
constexpr const char* read_sql =
    "SELECT take_outline(id, run_id, step_id, start_ns, end_ns, phase_id, level, lane, thread_id) FROM span "
    "NOT INDEXED WHERE id > ";
constexpr const char* names[columns] = {"id",       "run_id", "step_id", "start_ns", "end_ns",
                                        "phase_id", "level",  "lane",    "thread_id"};

void nothing(sqlite3_context*) {}

}  // namespace

SpanOutlines::SpanOutlines(const std::string& path, RowId after) {
    auto own = open_capture(path, OpenMode::unchecked);
    if (!own.ok()) {
        failure_ = own.error();
        return;
    }
    own_ = std::move(*own);
    thread_ = std::thread([this, path, after] { read(path, after); });
    refill();
}

SpanOutlines::~SpanOutlines() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    space_.notify_one();
    thread_.join();
}

SpanRow SpanOutlines::take() {
    const SpanOutline& from = block_[at_];
    SpanRow row;
    row.id = from.id;
    row.run_id = from.run_id;
    row.step_id = from.step_id;
    row.start_ns = from.start_ns;
    row.end_ns = from.end_ns;
    row.phase_id = from.phase_id;
    row.level = from.level;
    row.lane = from.lane;
    row.thread_id = from.thread_id;
    if (++at_ == block_.size()) refill();
    return row;
}

void SpanOutlines::read(const std::string& path, RowId after) {
    pthread_setname_np(pthread_self(), "ds-reader");
    last_id_ = after;
    int code =
        sqlite3_create_function_v2(own_.get(), "take_outline", columns, SQLITE_UTF8 | SQLITE_DIRECTONLY, this,
                                   nullptr, &take_row, &nothing, nullptr);
    if (code == SQLITE_OK) {
        Statement all = own_.prepare(read_sql + std::to_string(after));
        code = all ? all.step() : SQLITE_ERROR;
    }
    if (code == SQLITE_ROW && !filling_.empty()) submit_block();
    const std::lock_guard lock(mutex_);
    done_ = true;
    if (code != SQLITE_ROW && end_problem_.empty() && !stop_)
        end_failure_ = file_error(path, own_, "reading table span");
    filled_.notify_one();
}

/// SQLite calls this function for every row of the table.
void SpanOutlines::take_row(sqlite3_context* context, int, sqlite3_value** values) {
    auto* self = static_cast<SpanOutlines*>(sqlite3_user_data(context));
    if (!self->add(values)) sqlite3_result_error(context, "no more wanted", -1);
}

bool SpanOutlines::add(sqlite3_value** values) {
    std::int64_t of[columns];
    for (int c = 0; c < columns; ++c) of[c] = sqlite3_value_int64(values[c]);
    ++rows_;
    const auto fits = [&](int c, std::int64_t low, std::int64_t high) {
        if (of[c] >= low && of[c] <= high) return true;
        if (end_problem_.empty())
            end_problem_ = fmt::format("table span, row {}: column {} holds {}", rows_, names[c], of[c]);
        return false;
    };
    constexpr std::int64_t low = std::numeric_limits<int>::min(), high = std::numeric_limits<int>::max();
    if (!fits(0, last_id_ + 1, std::numeric_limits<std::int64_t>::max()) || !fits(5, 0, max_phases - 1) ||
        !fits(6, low, high) || !fits(7, low, high) || !fits(8, low, high)) {
        if (!filling_.empty()) submit_block();
        return false;
    }
    last_id_ = of[0];
    filling_.push_back({of[0], of[1], of[2], of[3], of[4], static_cast<int>(of[5]), static_cast<int>(of[6]),
                        static_cast<int>(of[7]), static_cast<int>(of[8])});
    return filling_.size() < block_rows || submit_block();
}

/// Passes the filled block to the caller when there is space. Returns false if the caller has stopped.
bool SpanOutlines::submit_block() {
    std::unique_lock lock(mutex_);
    space_.wait(lock, [&] { return stop_ || ready_.size() < blocks_ahead; });
    if (stop_) return false;
    ready_.push_back(std::move(filling_));
    filling_ = Block();
    if (!empty_.empty()) {
        filling_ = std::move(empty_.back());
        empty_.pop_back();
    }
    filling_.reserve(block_rows);
    filled_.notify_one();
    return true;
}

void SpanOutlines::refill() {
    at_ = 0;
    block_.clear();
    std::unique_lock lock(mutex_);
    if (block_.capacity() > 0) empty_.push_back(std::move(block_));
    block_ = Block();
    filled_.wait(lock, [&] { return done_ || !ready_.empty(); });
    if (!ready_.empty()) {
        block_ = std::move(ready_.front());
        ready_.pop_front();
        space_.notify_one();
        return;
    }
    problem_ = end_problem_;
    failure_ = end_failure_;
}

}  // namespace draftscope::storage
