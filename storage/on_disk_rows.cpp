#include "storage/on_disk_rows.h"

#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <list>
#include <mutex>
#include <system_error>
#include <utility>

#include "capture/queries.h"
#include "storage/row_reader.h"
#include "storage/schema.h"

namespace draftscope::storage {
namespace {

/// Calls `visit` with the columns of an outline, in their order.
template <typename Visit>
void for_each_outline_column(Visit visit) {
    for_each_field<SpanRow>([&](auto index) {
        constexpr const auto& column = column_of<SpanRow, index>;
        if constexpr (column.name != "round_id" && column.name != "rows" && column.name != "bytes")
            visit(column);
    });
}

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
    const SpanRow row = block_[at_];
    if (++at_ == block_.size()) refill();
    return row;
}

void SpanOutlines::read(const std::string& path, RowId after) {
    pthread_setname_np(pthread_self(), "ds-reader");
    last_id_ = after;
    std::string columns;
    for_each_outline_column([&](const auto& column) {
        columns += fmt::format("{}{}", columns.empty() ? "" : ", ", column.name);
    });
    constexpr int any_count = -1;
    int code =
        sqlite3_create_function_v2(own_.get(), "take_outline", any_count, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                   this, nullptr, &take_row, &nothing, nullptr);
    if (code == SQLITE_OK) {
        // Reads by rowid: no index covers all columns, so SQLite scans the table in id order. add() checks
        // that.
        Statement all = own_.prepare(
            fmt::format("SELECT take_outline({}) FROM span NOT INDEXED WHERE id > {}", columns, after));
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
    ++rows_;
    SpanRow row;
    for_each_outline_column([&](const auto& column) {
        using Field = std::remove_reference_t<decltype(row.*column.field)>;
        const std::int64_t value = sqlite3_value_int64(*values++);
        row.*column.field = static_cast<Field>(value);
        const bool fits = column.is_key                ? value > last_id_
                          : std::is_same_v<Field, int> ? value >= column.low && value <= column.high
                                                       : true;
        if (!fits && end_problem_.empty())
            end_problem_ = fmt::format("table span, row {}: column {} holds {}", rows_, column.name, value);
    });
    if (!end_problem_.empty()) {
        if (!filling_.empty()) submit_block();
        return false;
    }
    last_id_ = row.id;
    filling_.push_back(row);
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

namespace {

/// Cached, so that moving back and forth in a run does not read again.
constexpr std::size_t max_kept = 64;

class SqliteRows final : public OnDiskRows {
  public:
    SqliteRows(std::string path, Database db) : path_(std::move(path)), db_(std::move(db)) {}

    std::shared_ptr<const RoundTree> tree(RowId round_id) const override {
        const std::lock_guard lock(mutex_);
        const auto known = std::find_if(kept_.begin(), kept_.end(),
                                        [&](const auto& entry) { return entry.first == round_id; });
        if (known != kept_.end()) {
            kept_.splice(kept_.begin(), kept_, known);
            return kept_.front().second;
        }
        auto tree = std::make_shared<RoundTree>();
        read<NodeRow>(round_id, tree->nodes, tree->problem);
        read<NodeTopRow>(round_id, tree->tops, tree->problem);
        if (tree->problem.empty()) tree->problem = tree_problem(round_id, *tree);
        if (!tree->problem.empty()) {
            tree->problem = path_ + ": " + tree->problem;
            tree->nodes.clear();
            tree->tops.clear();
        }
        kept_.emplace_front(round_id, std::move(tree));
        if (kept_.size() > max_kept) kept_.pop_back();
        return kept_.front().second;
    }

    std::optional<SpanRow> span(RowId id) const override {
        const std::lock_guard lock(mutex_);
        if (span_ && span_->id == id) return span_;  // the span under the pointer is requested in every frame
        Cursor<SpanRow> rows(db_, "id", id);
        if (!rows.has()) return std::nullopt;
        span_ = rows.take();
        return span_;
    }

    Status save_copy(const std::string& out) const override {
        const std::lock_guard lock(mutex_);
        return copy_database(db_, out, out);
    }

  private:
    template <typename Row>
    void read(RowId round_id, std::vector<Row>& out, std::string& problem) const {
        Cursor<Row> rows(db_, "round_id", round_id);
        while (rows.has()) out.push_back(rows.take());
        if (!problem.empty()) return;
        if (!rows.problem().empty())
            problem = fmt::format("damaged capture: {}, which is impossible", rows.problem());
        else if (rows.code() != SQLITE_OK)
            problem = fmt::format("reading table {}: {}", Table<Row>::name, one_line(db_.message()));
    }

    std::string path_;
    Database db_;
    mutable std::mutex mutex_;
    mutable std::list<std::pair<RowId, std::shared_ptr<const RoundTree>>> kept_;  ///< newest first
    mutable std::optional<SpanRow> span_;                                         ///< last requested
};

}  // namespace

std::string tree_problem(RowId round_id, const RoundTree& tree) {
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
        const NodeRow& row = tree.nodes[i];
        const int at = static_cast<int>(i);
        if (row.node != at || row.parent >= at || (row.parent < 0) != (at == 0))
            return fmt::format("damaged capture: round {} has node {} with parent {} at position {}",
                               round_id, row.node, row.parent, at);
    }
    for (const NodeTopRow& top : tree.tops)
        if (static_cast<std::size_t>(top.node) >= tree.nodes.size())
            return fmt::format(
                "damaged capture: table node_top names node {} of round {}, which has {} nodes", top.node,
                round_id, tree.nodes.size());
    return {};
}

std::shared_ptr<const OnDiskRows> open_on_disk_rows(const std::string& path, const Database& db,
                                                    std::int64_t preload_limit) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || size <= static_cast<std::uintmax_t>(preload_limit)) return nullptr;
    if (db.integer("SELECT count(*) FROM run WHERE ended IS NULL").value_or(1) > 0) return nullptr;
    if (db.integer("SELECT count(*) FROM sqlite_schema WHERE name IN ('i_node_round', 'i_node_top_round', "
                   "'step_phase')") != 3)
        return nullptr;
    // A timeline stores span ids in 32 bits.
    if (db.integer("SELECT max(id) FROM span").value_or(0) > std::numeric_limits<std::uint32_t>::max() ||
        db.integer("SELECT min(id) FROM span").value_or(0) < 0)
        return nullptr;
    auto own = open_capture(path, OpenMode::unchecked);
    if (!own.ok()) return nullptr;
    return std::make_shared<const SqliteRows>(path, std::move(*own));
}

}  // namespace draftscope::storage
