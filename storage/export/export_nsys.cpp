#include <cinttypes>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "storage/capture_file.h"
#include "storage/schema.h"
#include "storage/sql.h"

// Exports a capture as the SQLite file that `nsys export` makes, for existing queries and scripts. All
// relations are tables, because scripts look for them in sqlite_master. Data that nsys lacks is in
// DRAFTSCOPE_* tables.
namespace draftscope {
namespace {

// CREATE TABLE statements for the tables of a Nsight Systems export that we fill. Columns and their order are
// those of schema 3.16.1. The tables have no STRICT and no indexes, since scripts look up the columns.

/// Always created: strings, ranges, process, session, enumerations. Activity tables are created only if they
/// have rows.
const char* const nsys_base_sql = R"sql(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL,
  stopTime INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
  nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES
  (33, 'NvtxCategory', 'NVTX category'), (34, 'NvtxMark', 'NVTX mark'),
  (59, 'NvtxPushPopRange', 'NVTX push/pop range'), (60, 'NvtxStartEndRange', 'NVTX start/end range'),
  (75, 'NvtxDomainCreate', 'NVTX domain create'), (76, 'NvtxDomainDestroy', 'NVTX domain destroy');
CREATE TABLE ENUM_NSYS_EVENT_CLASS (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_NSYS_EVENT_CLASS VALUES (0, 'TRACE_PROCESS_EVENT_CUDA_RUNTIME', 'CUDA runtime'),
  (1, 'TRACE_PROCESS_EVENT_CUDA_DRIVER', 'CUDA driver');
)sql";

const char* const nsys_kernel_sql = R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
  sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE ENUM_CUDA_KERNEL_LAUNCH_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_KERNEL_LAUNCH_TYPE VALUES (0, 'CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN', 'Unknown'),
  (1, 'CUDA_KERNEL_LAUNCH_TYPE_REGULAR', 'Regular'),
  (2, 'CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE', 'Cooperative Single Device'),
  (3, 'CUDA_KERNEL_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE', 'Cooperative Multi Device');
)sql";

const char* const nsys_memcpy_sql = R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,
  dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER,
  migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (0, 'CUDA_MEMCPY_KIND_UNKNOWN', 'Unknown'),
  (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'), (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'),
  (3, 'CUDA_MEMCPY_KIND_HTOA', 'Host-to-Array'), (4, 'CUDA_MEMCPY_KIND_ATOH', 'Array-to-Host'),
  (5, 'CUDA_MEMCPY_KIND_ATOA', 'Array-to-Array'), (6, 'CUDA_MEMCPY_KIND_ATOD', 'Array-to-Device'),
  (7, 'CUDA_MEMCPY_KIND_DTOA', 'Device-to-Array'), (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device'),
  (9, 'CUDA_MEMCPY_KIND_HTOH', 'Host-to-Host'), (10, 'CUDA_MEMCPY_KIND_PTOP', 'Peer-to-Peer'),
  (11, 'CUDA_MEMCPY_KIND_UVM_HTOD', 'Unified Host-to-Device'),
  (12, 'CUDA_MEMCPY_KIND_UVM_DTOH', 'Unified Device-to-Host'),
  (13, 'CUDA_MEMCPY_KIND_UVM_DTOD', 'Unified Device-to-Device');
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
  (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
  (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'), (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed'),
  (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'),
  (6, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC', 'Managed Static'),
  (7, 'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN', 'Unknown');
)sql";

const char* const nsys_memset_sql = R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
)sql";

const char* const nsys_graph_sql = R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
)sql";

const char* const nsys_runtime_sql = R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
)sql";

const char* const nsys_gpu_sql = R"sql(
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
  isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER,
  smCount INTEGER, pwGpuId INTEGER, uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT,
  ctrlDevPath TEXT, revision INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER,
  maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER,
  maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, asyncEngines INTEGER, maxWarpsPerSm INTEGER,
  maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, maxBlockDimX INTEGER, maxBlockDimY INTEGER,
  maxBlockDimZ INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER, maxGridDimZ INTEGER, computeMajor INTEGER,
  computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL,
  processId INTEGER NOT NULL, contextId INTEGER NOT NULL, priority INTEGER NOT NULL, flag INTEGER NOT NULL);
)sql";

using storage::Database;
using storage::Statement;

constexpr std::int64_t push_pop = 59, start_end = 60, mark = 34, category_row = 33, domain_row = 75;
constexpr std::int64_t first_foreign_domain = 2;

/// Hardware and VM are 0; process and thread have 24 bits each.
std::int64_t global_pid(std::int64_t pid) {
    return pid << 24;
}

/// `foo<int>(float*)` and `void ns::foo<int>(float*)` become `foo`. The name ends at the first parenthesis or
/// angle bracket that is not part of an operator's name; the last component is returned.
std::string short_kernel_name(std::string_view name) {
    std::size_t end = name.find('(');
    const std::size_t angle = name.find('<');
    if (angle != std::string_view::npos && angle < end) end = angle;
    if (end == std::string_view::npos) end = name.size();
    std::string_view head = name.substr(0, end);
    const std::size_t colons = head.rfind("::");
    if (colons != std::string_view::npos) head.remove_prefix(colons + 2);
    const std::size_t space = head.rfind(' ');
    if (space != std::string_view::npos) head.remove_prefix(space + 1);
    return std::string(head.empty() ? name : head);
}

class NsysExport {
  public:
    NsysExport(const std::string& path, const Database& from, const std::string& partial, const Database& to)
        : path_(path), from_(from), partial_(partial), to_(to) {}

    Status write() {
        DS_TRY(script(nsys_base_sql));
        DS_TRY(session());
        DS_TRY(ranges());
        DS_TRY(foreign_ranges());
        DS_TRY(calls());
        DS_TRY(gpu_ops());
        DS_TRY(speculation_tables());
        DS_TRY(strings());
        return script("COMMIT");
    }

  private:
    Status script(const std::string& sql) {
        if (to_.exec(sql) == SQLITE_OK) return {};
        return write_error();
    }
    Error write_error() const {
        return failed("{}: can't be written: {}; free space or choose another folder", partial_,
                      to_.message());
    }
    template <typename Use>
    Status each(std::string_view sql, Use use) {
        return storage::for_each_row(path_, from_, "exporting", sql, use);
    }
    /// Inserts a row. `create` runs before the table's first one; null = the table exists.
    template <typename... Values>
    Status insert(const char* create, const char* table, const Values&... values) {
        Statement& statement = tables_[table];
        if (!statement) {
            if (create != nullptr) DS_TRY(script(create));
            std::string marks = "?";
            for (std::size_t i = 1; i < sizeof...(values); ++i) marks += ",?";
            statement = to_.prepare(fmt::format("INSERT INTO {} VALUES ({})", table, marks));
        }
        if (!statement || statement.run(values...) != SQLITE_DONE) return write_error();
        return {};
    }
    /// Inserts a row of NVTX_EVENTS. A name is a text, or the id of one.
    template <typename RangeId, typename End, typename Colour, typename Text, typename TextId,
              typename Payload, typename Json>
    Status event(TimeNs start, const End& end, std::int64_t type, const RangeId& id, std::int64_t category,
                 const Colour& colour, const Text& text, std::int64_t thread, const TextId& text_id,
                 std::int64_t domain, const Payload& payload, const Json& json) {
        return insert(nullptr, "NVTX_EVENTS", start, end, type, id, category, colour, text, thread, nullptr,
                      text_id, domain, payload, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, json);
    }
    std::int64_t string_id(std::string_view text) {
        return strings_.try_emplace(std::string(text), static_cast<std::int64_t>(strings_.size()))
            .first->second;
    }
    std::int64_t thread_id_for(std::int64_t run, std::int64_t thread) {
        const std::int64_t id = global_pid(pids_[run]) | (thread & 0xFFFFFF);
        threads_.try_emplace(id, run);
        return id;
    }
    TimeNs at(std::int64_t run, TimeNs ns) const {
        const auto found = offsets_.find(run);
        return ns + (found != offsets_.end() ? found->second : 0);
    }
    Status session();
    Status ranges();
    Status range(std::int64_t run, std::int64_t thread, std::int64_t type, TimeNs start, TimeNs end,
                 std::string_view name, std::int64_t category, std::int64_t colour, std::int64_t payload,
                 const std::string& json);
    Status foreign_ranges();
    Status calls();
    Status gpu_ops();
    Status gpu_op(const Statement& row);
    Status speculation_tables();
    Status strings();

    const std::string& path_;
    const Database& from_;
    const std::string& partial_;
    const Database& to_;
    std::map<std::string, Statement> tables_;
    std::map<std::string, std::int64_t> strings_;
    std::map<std::int64_t, std::int64_t> pids_, threads_;
    std::map<std::int64_t, std::int64_t> engine_threads_;  ///< the decoding thread of each run
    std::map<std::int64_t, TimeNs> offsets_;
    std::map<std::string, std::int64_t> domains_;
    std::int64_t next_range_ = 1;
};

Status NsysExport::session() {
    // Each run has its own time zero; the export uses the first run's.
    DS_TRY(
        each("SELECT run_id, min(monotonic_ns) - (SELECT min(monotonic_ns) FROM clock_anchor) "
             "FROM clock_anchor GROUP BY run_id",
             [&](Statement& row) { offsets_[row.integer(0)] = row.integer(1); }));
    const auto process = [&](Statement& row) -> Status {
        const std::int64_t run = row.integer(0);
        pids_[run] = row.integer(6) & 0xFFFFFF;
        DS_TRY(insert(nullptr, "PROCESSES", global_pid(pids_[run]), pids_[run],
                      fmt::format("draftscope: {}, {}, {}", row.text(2), row.text(3), row.text(4))));
        DS_TRY(
            insert(nullptr, "META_DATA_CAPTURE", fmt::format("DRAFTSCOPE_RUN_{}_VERIFY", run), row.text(7)));
        return insert(nullptr, "META_DATA_CAPTURE", fmt::format("DRAFTSCOPE_RUN_{}_TIER", run), row.text(5));
    };
    DS_TRY(each(
        fmt::format("SELECT id, name, target, drafter, head, tier, coalesce(json_extract(machine_json, "
                    "'$.pid'), id), verify || CASE {} WHEN 'exact' THEN '' WHEN 'LOSSY' THEN ' (LOSSY' || "
                    "iif(acceptance = 'real', ')', ', acceptance ' || acceptance || ')') "
                    "ELSE ' (lossless in distribution)' END FROM run ORDER BY id",
                    storage::losslessness_sql),
        process));
    const std::pair<std::string, std::string> facts[] = {
        {"EXPORT_PRODUCT_NAME", "Draftscope"},
        {"EXPORT_SCHEMA_VERSION", "3.16.1"},
        {"DRAFTSCOPE_CAPTURE_SCHEMA", std::to_string(capture_schema_version)},
        {"DRAFTSCOPE_COLUMNS_NOT_RECORDED", "contextId, *SharedMemory, localMemory*, gridId, returnValue"}};
    for (const auto& [name, value] : facts) DS_TRY(insert(nullptr, "META_DATA_EXPORT", name, value));
    const std::int64_t utc = from_.integer("SELECT min(utc_ns) FROM clock_anchor").value_or(0);
    const std::string text =
        from_.text("SELECT started_utc FROM run ORDER BY id LIMIT 1").value_or(std::string());
    DS_TRY(insert(nullptr, "TARGET_INFO_SESSION_START_TIME", utc, text, text));
    const std::int64_t length =
        from_.integer("SELECT max(monotonic_ns) - min(monotonic_ns) FROM clock_anchor").value_or(0);
    return insert(nullptr, "ANALYSIS_DETAILS", 0, length, 0, length);
}

Status NsysExport::range(std::int64_t run, std::int64_t thread, std::int64_t type, TimeNs start, TimeNs end,
                         std::string_view name, std::int64_t category, std::int64_t colour,
                         std::int64_t payload, const std::string& json) {
    const std::int64_t tid = thread_id_for(run, thread);
    const storage::IdOrNull id{type == start_end ? next_range_++ : 0};
    return event(at(run, start), at(run, end), type, id, category, colour, nullptr, tid, string_id(name), 1,
                 payload, json);
}

Status NsysExport::ranges() {
    DS_TRY(each("SELECT run_id, min(thread_id) FROM span WHERE lane = 0 GROUP BY run_id",
                [&](Statement& row) { engine_threads_[row.integer(0)] = row.integer(1); }));
    const auto describe = [&](std::int64_t run, std::int64_t type, std::int64_t category,
                              std::string_view text, std::int64_t domain) {
        return event(0, nullptr, type, nullptr, category, nullptr, text,
                     thread_id_for(run, engine_threads_[run]), nullptr, domain, nullptr, nullptr);
    };
    for (const auto& [run, pid] : pids_) {
        DS_TRY(describe(run, domain_row, 0, "draftscope", 1));
        // Category ids are phase ids, as in live NVTX ranges; 100 is the step.
        DS_TRY(each("SELECT id, name FROM phase WHERE id > 0", [&, r = run](Statement& row) {
            return describe(r, category_row, row.integer(0), row.text(1), 1);
        }));
        DS_TRY(describe(run, category_row, 100, "step", 1));
    }
    // A step is a range around its phases, on the thread of its critical lane.
    DS_TRY(
        each("SELECT t.run_id, (SELECT s.thread_id FROM span s WHERE s.step_id = t.id AND s.lane = 0 "
             "LIMIT 1), t.start_ns, t.end_ns, t.ordinal, coalesce(t.excluded, '') FROM step t "
             "WHERE t.end_ns IS NOT NULL ORDER BY t.id",
             [&](Statement& row) {
                 return range(row.integer(0), row.integer(1), push_pop, row.integer(2), row.integer(3),
                              "step", 100, 0xFF909090, row.integer(4),
                              fmt::format(R"({{"step":{},"excluded":"{}"}})", row.integer(4), row.text(5)));
             }));
    // Side lanes run concurrently with the critical lane of their thread, so their ranges may overlap.
    return each(
        "SELECT s.run_id, s.thread_id, s.lane, s.start_ns, s.end_ns, p.name, p.id, p.colour, s.level, "
        "s.rows, s.bytes, coalesce(r.ordinal, -1), coalesce(t.ordinal, -1) FROM span s JOIN phase p ON p.id "
        "= s.phase_id LEFT JOIN round r ON r.id = s.round_id LEFT JOIN step t ON t.id = s.step_id ORDER BY "
        "s.id",
        [&](Statement& row) {
            const auto round = static_cast<std::uint64_t>(static_cast<std::uint32_t>(row.integer(11)));
            const std::uint64_t payload = round << 16 | static_cast<std::uint16_t>(row.integer(8));
            const std::string colour(row.text(7));  // "#RRGGBB"
            const std::int64_t argb =
                0xFF000000 | (colour.empty() ? 0 : std::strtoll(colour.c_str() + 1, nullptr, 16));
            return range(
                row.integer(0), row.integer(1), row.integer(2) == 0 ? push_pop : start_end, row.integer(3),
                row.integer(4), row.text(5), row.integer(6), argb, static_cast<std::int64_t>(payload),
                fmt::format(R"({{"step":{},"round":{},"level":{},"rows":{},"bytes":{}}})", row.integer(12),
                            row.integer(11), row.integer(8), row.integer(9), row.integer(10)));
        });
}

Status NsysExport::foreign_ranges() {
    return each(
        "SELECT run_id, domain, name, thread_id, start_ns, end_ns, payload FROM nvtx_range "
        "WHERE domain != 'CUDA API' ORDER BY rowid",
        [&](Statement& row) -> Status {
            const std::int64_t run = row.integer(0);
            const std::int64_t tid = thread_id_for(run, row.integer(3));
            const std::string domain(row.text(1));
            const auto [known, added] = domains_.try_emplace(
                domain,
                domain.empty() ? 0 : first_foreign_domain + static_cast<std::int64_t>(domains_.size()));
            if (added && !domain.empty())
                DS_TRY(event(0, nullptr, domain_row, nullptr, 0, nullptr, domain, tid, nullptr, known->second,
                             nullptr, nullptr));
            const auto write = [&, id = known->second](std::int64_t type, const auto& end) {
                return event(at(run, row.integer(4)), end, type, nullptr, 0, nullptr, row.text(2), tid,
                             nullptr, id, row.integer(6), nullptr);
            };
            return row.integer(4) == row.integer(5) ? write(mark, nullptr)
                                                    : write(push_pop, at(run, row.integer(5)));
        });
}

Status NsysExport::calls() {
    return each(
        "SELECT run_id, name, thread_id, start_ns, end_ns, payload FROM nvtx_range WHERE domain = 'CUDA API' "
        "ORDER BY rowid",
        [&](Statement& row) {
            const std::int64_t run = row.integer(0);
            const bool driver = !row.text(1).starts_with("cuda") && !row.text(1).starts_with("__");
            return insert(nsys_runtime_sql, "CUPTI_ACTIVITY_KIND_RUNTIME", at(run, row.integer(3)),
                          at(run, row.integer(4)), driver, thread_id_for(run, row.integer(2)), row.integer(5),
                          string_id(row.text(1)), 0, nullptr);
        });
}

Status NsysExport::gpu_op(const Statement& row) {
    constexpr int context = 1, unknown_memory = 7;
    const std::int64_t run = row.integer(0);
    const TimeNs start = at(run, row.integer(2)), end = at(run, row.integer(3));
    const std::int64_t stream = row.integer(1), correlation = row.integer(5), device = row.integer(10);
    const std::int64_t pid = global_pid(pids_[run]);
    const storage::IdOrNull node{row.integer(6)};
    const std::string name(row.text(4)), grid(row.text(7)), block(row.text(8));
    if (!grid.empty()) {
        std::int64_t g[3] = {1, 1, 1}, b[3] = {1, 1, 1};
        constexpr const char* triple = "%" SCNd64 ",%" SCNd64 ",%" SCNd64;
        std::sscanf(grid.c_str(), triple, &g[0], &g[1], &g[2]);
        std::sscanf(block.c_str(), triple, &b[0], &b[1], &b[2]);
        return insert(nsys_kernel_sql, "CUPTI_ACTIVITY_KIND_KERNEL", start, end, device, context, nullptr,
                      stream, correlation, pid, string_id(name), string_id(short_kernel_name(name)), nullptr,
                      1, nullptr, row.integer(11), g[0], g[1], g[2], b[0], b[1], b[2], 0, 0, 0, 0, 0, nullptr,
                      node, nullptr);
    }
    if (name.starts_with("memcpy")) {
        static const std::map<std::string, int> kinds = {
            {"memcpy host to device", 1}, {"memcpy device to host", 2},
            {"memcpy HtoA", 3},           {"memcpy AtoH", 4},
            {"memcpy AtoA", 5},           {"memcpy AtoD", 6},
            {"memcpy DtoA", 7},           {"memcpy device to device", 8},
            {"memcpy host to host", 9},   {"memcpy peer to peer", 10}};
        const auto kind = kinds.find(name);
        return insert(nsys_memcpy_sql, "CUPTI_ACTIVITY_KIND_MEMCPY", start, end, device, context, nullptr,
                      stream, correlation, pid, row.integer(9), kind != kinds.end() ? kind->second : 0,
                      nullptr, unknown_memory, unknown_memory, nullptr, nullptr, nullptr, nullptr, nullptr,
                      node, nullptr);
    }
    if (name == "graph") {
        return insert(nsys_graph_sql, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end, device, context, nullptr,
                      stream, correlation, pid, 0, 0);
    }
    return insert(nsys_memset_sql, "CUPTI_ACTIVITY_KIND_MEMSET", start, end, device, context, nullptr, stream,
                  correlation, pid, 0, row.integer(9), node, unknown_memory);
}

Status NsysExport::gpu_ops() {
    const char* later = storage::has_column(from_, "gpu_op", "device") ? "device, registers" : "0, 0";
    DS_TRY(each(fmt::format("SELECT run_id, stream, start_ns, end_ns, name, correlation_id, graph_node_id, "
                            "grid, block, bytes, {} FROM gpu_op ORDER BY start_ns, id",
                            later),
                [&](Statement& row) { return gpu_op(row); }));
    if (from_.integer("SELECT EXISTS (SELECT 1 FROM gpu_op)").value_or(0) == 0) return {};
    DS_TRY(script(nsys_gpu_sql));
    const std::string gpu =
        from_
            .text(
                "SELECT json_extract(c.value, '$.state') FROM run, json_each(run.machine_json, "
                "'$.capabilities') c WHERE json_extract(c.value, '$.name') = 'GPU' LIMIT 1")
            .value_or("GPU");
    DS_TRY(script("INSERT INTO TARGET_INFO_GPU (vmId, id, name, cuDevice) VALUES (0, 0, " +
                  storage::sql_quoted(gpu, '\'') + ", 0)"));
    return each("SELECT DISTINCT run_id, stream FROM gpu_op ORDER BY 1, 2", [&](Statement& row) {
        return insert(nullptr, "TARGET_INFO_CUDA_STREAM", row.integer(1), 0, 0, pids_[row.integer(0)], 1, 0,
                      0);
    });
}

/// Writes the tables for speculation: a row per round with the step's times, and the phase of each GPU op.
Status NsysExport::speculation_tables() {
    DS_TRY(
        script("CREATE TABLE DRAFTSCOPE_ROUNDS (start INTEGER NOT NULL, end INTEGER NOT NULL, globalPid "
               "INTEGER, step INTEGER, prompt INTEGER, round INTEGER, treeNodes INTEGER, drafted INTEGER, "
               "accepted INTEGER, committed INTEGER)"));
    DS_TRY(
        each("SELECT r.run_id, r.start_ns, r.end_ns, t.ordinal, p.ordinal, r.ordinal, r.tree_nodes, "
             "r.drafted, r.accepted, r.committed FROM round r JOIN step t ON t.id = r.step_id JOIN prompt p "
             "ON p.id = r.prompt_id WHERE r.end_ns IS NOT NULL ORDER BY r.id",
             [&](Statement& row) {
                 const std::int64_t run = row.integer(0);
                 return insert(nullptr, "DRAFTSCOPE_ROUNDS", at(run, row.integer(1)), at(run, row.integer(2)),
                               global_pid(pids_[run]), row.integer(3), row.integer(4), row.integer(5),
                               row.integer(6), row.integer(7), row.integer(8), row.integer(9));
             }));
    DS_TRY(script(
        "CREATE TABLE DRAFTSCOPE_GPU_PHASES (start INTEGER NOT NULL, end INTEGER NOT NULL, globalPid "
        "INTEGER, streamId INTEGER, correlationId INTEGER, graphNodeId INTEGER, phase TEXT, step INTEGER)"));
    return each(
        "SELECT g.run_id, g.start_ns, g.end_ns, g.stream, g.correlation_id, g.graph_node_id, p.name, "
        "coalesce(t.ordinal, -1) FROM gpu_op g JOIN phase p ON p.id = g.phase_id LEFT JOIN step t ON "
        "t.id = g.step_id ORDER BY g.id",
        [&](Statement& row) {
            const std::int64_t run = row.integer(0);
            return insert(nullptr, "DRAFTSCOPE_GPU_PHASES", at(run, row.integer(1)), at(run, row.integer(2)),
                          global_pid(pids_[run]), row.integer(3), row.integer(4), row.integer(5), row.text(6),
                          row.integer(7));
        });
}

Status NsysExport::strings() {
    for (const auto& [tid, run] : threads_) {
        const std::int64_t thread = tid & 0xFFFFFF;
        const std::string name =
            thread == engine_threads_[run] ? std::string("engine") : fmt::format("thread {}", thread);
        DS_TRY(insert(nullptr, "ThreadNames", string_id(name), 0, tid));
    }
    for (const auto& [text, id] : strings_) DS_TRY(insert(nullptr, "StringIds", id, text));
    return {};
}

}  // namespace

Status export_nsys(const std::string& path, const std::string& out) {
    DS_ASSIGN(const Database from, storage::open_capture(path));
    DS_TRY(storage::check_new_file(out));
    if (from.exec("BEGIN") != SQLITE_OK) return storage::file_error(path, from, "starting to read");
    return storage::write_then_rename(out, [&](const std::string& partial) -> Status {
        std::error_code error;
        std::filesystem::remove(partial, error);
        std::string message;
        const Database to =
            storage::open_database(partial, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message);
        if (!to) return failed("{}: can't be written: {}", partial, message);
        // A crash loses nothing, because the file can be exported again. It gets its name only when complete.
        to.exec("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN");
        return NsysExport(path, from, partial, to).write();
    });
}

}  // namespace draftscope
