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
        DS_TRY(kernels());
        DS_TRY(memory_ops("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"));
        DS_TRY(memory_ops("CUPTI_ACTIVITY_KIND_MEMSET", "memset"));
        DS_TRY(memory_ops("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph"));
        return std::move(trace_);
    }

  private:
    bool has(const std::string& table) const { return columns_.contains(table); }
    /// Returns the column, or `otherwise` if the table lacks it.
    std::string column(const std::string& table, const std::string& name, const char* otherwise) const {
        const auto found = columns_.find(table);
        return found != columns_.end() && found->second.contains(name) ? name : std::string(otherwise);
    }
    template <typename F>
    Status each(const std::string& sql, F row) {
        Statement statement = db_.prepare(sql);
        if (!statement) return broken();
        int code = SQLITE_ROW;
        while ((code = statement.step()) == SQLITE_ROW) row(statement);
        return code == SQLITE_DONE ? Status() : Status(broken());
    }
    Error broken() const {
        return bad_input("{}: can't be read as an Nsight Systems export: {}", path_, one_line(db_.message()));
    }
    Status find_tables();
    Status strings();
    Status session();
    Status ranges();
    Status calls();
    Status kernels();
    Status memory_ops(const std::string& table, const char* name);
    const std::string& find_string(std::int64_t id) const {
        static const std::string none;
        const auto found = strings_.find(id);
        return found != strings_.end() ? found->second : none;
    }
    /// Correlation ids repeat across processes.
    static std::int64_t correlation(std::int64_t process, std::int64_t id) {
        return (process & 0xFFFFFF) << 32 | (id & 0xFFFFFFFF);
    }
    ImportedTimeline::Op op(const Statement& row, std::string name) const;

    const std::string& path_;
    Database db_;
    ImportedTimeline trace_;
    std::map<std::string, std::set<std::string>> columns_;
    std::map<std::int64_t, std::string> strings_;
};

Status NsysReader::find_tables() {
    std::vector<std::string> tables;
    DS_TRY(each("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
                [&](Statement& row) { tables.emplace_back(row.text(0)); }));
    for (const std::string& table : tables)
        DS_TRY(each("PRAGMA table_info(" + sql_quoted(table, '"') + ")",
                    [&](Statement& row) { columns_[table].insert(std::string(row.text(1))); }));
    if (has("NVTX_EVENTS") || has("CUPTI_ACTIVITY_KIND_KERNEL") || has("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") ||
        has("CUPTI_ACTIVITY_KIND_RUNTIME"))
        return {};
    return bad_input(
        "{}: an SQLite file without NVTX_EVENTS and CUPTI_ACTIVITY_KIND_* tables; is it an Nsight Systems "
        "export?",
        path_);
}

Status NsysReader::strings() {
    if (!has("StringIds")) return {};
    return each("SELECT id, value FROM StringIds",
                [&](Statement& row) { strings_[row.integer(0)] = std::string(row.text(1)); });
}

Status NsysReader::session() {
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

Status NsysReader::ranges() {
    const std::string table = "NVTX_EVENTS";
    if (!has(table)) return {};
    const auto value = [&](const char* name) { return column(table, name, "NULL"); };
    const std::string domain = column(table, "domainId", "0"), tid = column(table, "globalTid", "0");
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> domains;
    DS_TRY(each("SELECT " + domain + ", " + tid + ", " + value("text") + ", " + value("textId") +
                    " FROM NVTX_EVENTS WHERE eventType = 75",
                [&](Statement& row) {
                    const std::string name =
                        row.is_null(2) ? find_string(row.integer(3)) : std::string(row.text(2));
                    domains[{row.integer(1) >> 24, row.integer(0)}] = name;
                }));
    return each("SELECT start, end, eventType, " + tid + ", " + value("text") + ", " + value("textId") +
                    ", " + domain + ", coalesce(" + value("uint64Value") + ", " + value("int64Value") + ", " +
                    value("uint32Value") + ", " + value("int32Value") +
                    ", 0) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60, 70, 71) ORDER BY start",
                [&](Statement& row) {
                    const bool mark = row.integer(2) == 34;
                    ImportedTimeline::Range range;
                    range.name = row.is_null(4) ? find_string(row.integer(5)) : std::string(row.text(4));
                    range.thread = row.integer(3);
                    range.start = row.integer(0);
                    range.end = mark ? range.start : row.integer(1);
                    range.payload = row.integer(7);
                    const auto known = domains.find({range.thread >> 24, row.integer(6)});
                    if (known != domains.end()) range.domain = known->second;
                    // A range that was open at the end of the recording has no end.
                    if ((!mark && row.is_null(1)) || range.end < range.start)
                        ++trace_.skipped;
                    else
                        trace_.ranges.push_back(std::move(range));
                });
}

Status NsysReader::calls() {
    const std::string table = "CUPTI_ACTIVITY_KIND_RUNTIME";
    if (!has(table)) return {};
    return each("SELECT start, end, " + column(table, "globalTid", "0") + ", " +
                    column(table, "correlationId", "0") + ", " + column(table, "nameId", "0") + " FROM " +
                    table + " ORDER BY start",
                [&](Statement& row) {
                    ImportedTimeline::Call call;
                    call.start = row.integer(0);
                    call.end = row.integer(1);
                    call.thread = row.integer(2);
                    call.correlation = correlation(call.thread >> 24, row.integer(3));
                    call.name = find_string(row.integer(4));
                    if (call.end < call.start)
                        ++trace_.skipped;
                    else
                        trace_.calls.push_back(std::move(call));
                });
}

/// Columns 0 to 5 of every activity query: start, end, stream, process, correlation, graph node.
ImportedTimeline::Op NsysReader::op(const Statement& row, std::string name) const {
    ImportedTimeline::Op out;
    out.row.start_ns = row.integer(0);
    out.row.end_ns = row.integer(1);
    out.row.stream = static_cast<int>(row.integer(2));
    out.row.name = std::move(name);
    out.row.graph_node_id = row.integer(5);
    out.correlation = correlation(row.integer(3) >> 24, row.integer(4));
    return out;
}

Status NsysReader::kernels() {
    const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
    if (!has(table)) return {};
    const auto value = [&](const char* name) { return column(table, name, "0"); };
    const std::string name = column(table, "demangledName", column(table, "shortName", "0").c_str());
    return each("SELECT start, end, " + value("streamId") + ", " + value("globalPid") + ", " +
                    value("correlationId") + ", " + value("graphNodeId") + ", " + name + ", " +
                    value("gridX") + ", " + value("gridY") + ", " + value("gridZ") + ", " + value("blockX") +
                    ", " + value("blockY") + ", " + value("blockZ") + " FROM " + table + " ORDER BY start",
                [&](Statement& row) {
                    ImportedTimeline::Op kernel = op(row, find_string(row.integer(6)));
                    kernel.row.grid = fmt::format("{},{},{}", row.integer(7), row.integer(8), row.integer(9));
                    kernel.row.block =
                        fmt::format("{},{},{}", row.integer(10), row.integer(11), row.integer(12));
                    if (kernel.row.end_ns < kernel.row.start_ns)
                        ++trace_.skipped;
                    else
                        trace_.ops.push_back(std::move(kernel));
                });
}

Status NsysReader::memory_ops(const std::string& table, const char* name) {
    if (!has(table)) return {};
    const auto value = [&](const char* column_name) { return column(table, column_name, "0"); };
    static const std::map<std::int64_t, const char*> kinds = {{1, "memcpy host to device"},
                                                              {2, "memcpy device to host"},
                                                              {8, "memcpy device to device"},
                                                              {9, "memcpy host to host"},
                                                              {10, "memcpy peer to peer"}};
    return each("SELECT start, end, " + value("streamId") + ", " + value("globalPid") + ", " +
                    value("correlationId") + ", " + value("graphNodeId") + ", " + value("bytes") + ", " +
                    value("copyKind") + " FROM " + table + " ORDER BY start",
                [&](Statement& row) {
                    const auto kind = kinds.find(row.integer(7));
                    ImportedTimeline::Op memory_op = op(row, kind != kinds.end() ? kind->second : name);
                    memory_op.row.bytes = row.integer(6);
                    if (memory_op.row.end_ns < memory_op.row.start_ns)
                        ++trace_.skipped;
                    else
                        trace_.ops.push_back(std::move(memory_op));
                });
}

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
