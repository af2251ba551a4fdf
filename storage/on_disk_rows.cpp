#include "storage/on_disk_rows.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <list>
#include <mutex>
#include <system_error>
#include <utility>

#include "storage/row_reader.h"
#include "storage/schema.h"

namespace draftscope::storage {

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
        if (db_.exec("VACUUM INTO " + sql_quoted(out, '\'')) == SQLITE_OK) return {};
        return failed("{}: can't be written: {}; free space or choose another folder", out, db_.message());
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
