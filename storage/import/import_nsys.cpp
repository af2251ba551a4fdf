// Every version of Nsight Systems adds columns to its SQLite exports, so columns are looked up by name. A
// missing table means that it had no rows.
#include <map>
#include <set>

#include "storage/import/import_timeline.h"
#include "storage/sql.h"

namespace draftscope::storage {

namespace {

class NsysReader {
  public:
    NsysReader(const std::string& path, Database db) : path_(path), db_(std::move(db)) {}

    Result<ImportedTimeline> read() {
        DS_TRY(find_tables());
        trace_.kind = "nsys";
        DS_TRY(strings());
        DS_TRY(session());
        DS_TRY(ranges());
        DS_TRY(calls());
        DS_TRY(ops("CUPTI_ACTIVITY_KIND_KERNEL", ""));
        DS_TRY(ops("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"));
        DS_TRY(ops("CUPTI_ACTIVITY_KIND_MEMSET", "memset"));
        DS_TRY(ops("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph"));
        return std::move(trace_);
    }

  private:
    bool has(const std::string& table) const { return columns_.contains(table); }
    /// Returns the column, or `otherwise` if the table lacks it.
    std::string column(const std::string& table, const std::string& name, const char* otherwise) const {
        const auto found = columns_.find(table);
        return found != columns_.end() && found->second.contains(name) ? name : std::string(otherwise);
    }
    /// Selects columns in this order. One that the table lacks is replaced by what follows its '|'.
    std::string select(const std::string& table, std::initializer_list<std::string_view> names,
                       std::string_view rest) const {
        std::string list;
        for (const std::string_view one : names) {
            const std::size_t bar = one.find('|');
            const std::string name(one.substr(0, bar));
            list += list.empty() ? "SELECT " : ", ";
            list += bar == one.npos ? name : column(table, name, std::string(one.substr(bar + 1)).c_str());
        }
        return fmt::format("{} FROM {} {}", list, table, rest);
    }
    template <typename Use>
    Status each(const std::string& sql, Use use) {
        const Status read = for_each_row(path_, db_, "", sql, use);
        return read.ok() ? Status() : broken();
    }
    /// Keeps what has a length of at least 0.
    template <typename Row>
    void keep(std::vector<Row>& rows, Row row, TimeNs start, TimeNs end) {
        if (end < start)
            ++trace_.skipped;
        else
            rows.push_back(std::move(row));
    }
    Error broken() const {
        return bad_input("{}: can't be read as an Nsight Systems export: {}", path_, one_line(db_.message()));
    }
    const std::string& find_string(std::int64_t id) const {
        static const std::string none;
        const auto found = strings_.find(id);
        return found != strings_.end() ? found->second : none;
    }
    /// Correlation ids repeat across processes.
    static std::int64_t correlation(std::int64_t process, std::int64_t id) {
        return (process & 0xFFFFFF) << 32 | (id & 0xFFFFFFFF);
    }
    /// Returns a name that is stored as a text, or as the id of one.
    std::string text_or_id(const Statement& row, int text, int id) const {
        return row.is_null(text) ? find_string(row.integer(id)) : std::string(row.text(text));
    }

    Status find_tables() {
        std::vector<std::string> tables;
        DS_TRY(each("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
                    [&](Statement& row) { tables.emplace_back(row.text(0)); }));
        for (const std::string& table : tables)
            DS_TRY(each("PRAGMA table_info(" + sql_quoted(table, '"') + ")",
                        [&](Statement& row) { columns_[table].insert(std::string(row.text(1))); }));
        if (has("NVTX_EVENTS") || has("CUPTI_ACTIVITY_KIND_KERNEL") ||
            has("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") || has("CUPTI_ACTIVITY_KIND_RUNTIME"))
            return {};
        return bad_input(
            "{}: an SQLite file without NVTX_EVENTS and CUPTI_ACTIVITY_KIND_* tables; is it an Nsight "
            "Systems export?",
            path_);
    }

    Status strings() {
        if (!has("StringIds")) return {};
        return each("SELECT id, value FROM StringIds",
                    [&](Statement& row) { strings_[row.integer(0)] = std::string(row.text(1)); });
    }

    Status session() {
        if (has("TARGET_INFO_SESSION_START_TIME") &&
            column("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "") != "")
            trace_.utc_ns = db_.integer("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").value_or(0);
        if (has("TARGET_INFO_GPU") && column("TARGET_INFO_GPU", "name", "") != "")
            trace_.gpu = db_.text("SELECT name FROM TARGET_INFO_GPU LIMIT 1").value_or("");
        if (has("META_DATA_EXPORT"))
            trace_.product = db_.text(
                                    "SELECT group_concat(value, ' ') FROM META_DATA_EXPORT WHERE name LIKE "
                                    "'EXPORT_PRODUCT%'")
                                 .value_or("");
        return {};
    }

    Status ranges() {
        const std::string table = "NVTX_EVENTS";
        if (!has(table)) return {};
        std::map<std::pair<std::int64_t, std::int64_t>, std::string> domains;
        DS_TRY(each(
            select(table, {"domainId|0", "globalTid|0", "text|NULL", "textId|NULL"}, "WHERE eventType = 75"),
            [&](Statement& row) {
                domains[{row.integer(1) >> 24, row.integer(0)}] = text_or_id(row, 2, 3);
            }));
        return each(
            select(table,
                   {"start", "end", "eventType", "globalTid|0", "text|NULL", "textId|NULL", "domainId|0",
                    "uint64Value|NULL", "int64Value|NULL", "uint32Value|NULL", "int32Value|NULL"},
                   "WHERE eventType IN (34, 59, 60, 70, 71) ORDER BY start"),
            [&](Statement& row) {
                const bool mark = row.integer(2) == 34;
                ImportedTimeline::Range range;
                range.name = text_or_id(row, 4, 5);
                range.thread = row.integer(3);
                range.start = row.integer(0);
                // A range that was open at the end of the recording has no end.
                range.end = mark             ? range.start
                            : row.is_null(1) ? std::numeric_limits<TimeNs>::min()
                                             : row.integer(1);
                for (int value = 10; value >= 7; --value)  // the first that is given
                    if (!row.is_null(value)) range.payload = row.integer(value);
                const auto known = domains.find({range.thread >> 24, row.integer(6)});
                if (known != domains.end()) range.domain = known->second;
                keep(trace_.ranges, range, range.start, range.end);
            });
    }

    Status calls() {
        const std::string table = "CUPTI_ACTIVITY_KIND_RUNTIME";
        if (!has(table)) return {};
        return each(
            select(table, {"start", "end", "globalTid|0", "correlationId|0", "nameId|0"}, "ORDER BY start"),
            [&](Statement& row) {
                const std::int64_t thread = row.integer(2);
                keep(trace_.calls,
                     ImportedTimeline::Call{find_string(row.integer(4)), thread,
                                            correlation(thread >> 24, row.integer(3)), row.integer(0),
                                            row.integer(1)},
                     row.integer(0), row.integer(1));
            });
    }

    /// Reads GPU work that is called `name`; the name of a kernel is in its row, and of a copy follows from
    /// its kind.
    Status ops(const std::string& table, const char* name) {
        if (!has(table)) return {};
        static const std::map<std::int64_t, const char*> kinds = {{1, "memcpy host to device"},
                                                                  {2, "memcpy device to host"},
                                                                  {8, "memcpy device to device"},
                                                                  {9, "memcpy host to host"},
                                                                  {10, "memcpy peer to peer"}};
        const bool kernels = *name == '\0';
        const std::string kernel_name = "demangledName|" + column(table, "shortName", "0");
        return each(
            select(table,
                   {"start", "end", "streamId|0", "globalPid|0", "correlationId|0", "graphNodeId|0",
                    "bytes|0", "copyKind|0", kernel_name, "gridX|0", "gridY|0", "gridZ|0", "blockX|0",
                    "blockY|0", "blockZ|0"},
                   "ORDER BY start"),
            [&](Statement& row) {
                ImportedTimeline::Op op;
                op.row.start_ns = row.integer(0);
                op.row.end_ns = row.integer(1);
                op.row.stream = static_cast<int>(row.integer(2));
                op.row.graph_node_id = row.integer(5);
                op.correlation = correlation(row.integer(3) >> 24, row.integer(4));
                if (kernels) {
                    op.row.name = find_string(row.integer(8));
                    op.row.grid = fmt::format("{},{},{}", row.integer(9), row.integer(10), row.integer(11));
                    op.row.block = fmt::format("{},{},{}", row.integer(12), row.integer(13), row.integer(14));
                } else {
                    const auto kind = kinds.find(row.integer(7));
                    op.row.name = kind != kinds.end() ? kind->second : name;
                    op.row.bytes = row.integer(6);
                }
                keep(trace_.ops, op, op.row.start_ns, op.row.end_ns);
            });
    }

    const std::string& path_;
    Database db_;
    ImportedTimeline trace_;
    std::map<std::string, std::set<std::string>> columns_;
    std::map<std::int64_t, std::string> strings_;
};

}  // namespace

Result<ImportedTimeline> read_nsys(const std::string& path) {
    std::string message;
    Database db = open_database(path, SQLITE_OPEN_READONLY, &message);
    if (!db) return bad_input("{}: can't be opened: {}", path, message);
    // The file is untrusted: its schema must not run application functions.
    db.exec("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON");
    return NsysReader(path, std::move(db)).read();
}

}  // namespace draftscope::storage
