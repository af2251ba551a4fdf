#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "storage/schema.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/storage/file_helpers.h"
#include "tests/unit/storage/random_capture.h"

// Queries that users run on Nsight Systems exports (profile reports and common scripts, rewritten).
namespace draftscope {
namespace {

using testing::apply_all;
using testing::open_plain;
using testing::query;
using testing::RandomCapture;
using testing::ScratchFolder;
using testing::write_all;

constexpr const char* nvtx_sum = R"sql(
WITH domains AS (SELECT domainId AS id, text AS name, globalTid / 0x1000000 AS process FROM NVTX_EVENTS
                 WHERE eventType = 75),
ranges AS (SELECT coalesce(d.name || ':', '') || coalesce(e.text, s.value) AS name, e.end - e.start AS duration,
           CASE e.eventType WHEN 59 THEN 'PushPop' WHEN 60 THEN 'StartEnd' END AS style
           FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId
           LEFT JOIN domains d ON d.id = e.domainId AND d.process = e.globalTid / 0x1000000
           WHERE e.eventType IN (59, 60) AND e.end IS NOT NULL)
SELECT name, style, count(*), sum(duration), min(duration), max(duration) FROM ranges GROUP BY name, style ORDER BY 1, 2)sql";

constexpr const char* kern_sum = R"sql(
SELECT s.value, count(*), sum(k.end - k.start), round(100.0 * sum(k.end - k.start) / (SELECT sum(end - start) FROM
CUPTI_ACTIVITY_KIND_KERNEL), 3) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
GROUP BY k.shortName ORDER BY 3 DESC, 1)sql";

constexpr const char* launch_latency = R"sql(
SELECT a.value, k.start - r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN CUPTI_ACTIVITY_KIND_KERNEL k
ON k.correlationId = r.correlationId AND k.globalPid = r.globalTid & 0xFFFFFFFFFF000000 JOIN StringIds a ON a.id = r.nameId
ORDER BY k.start)sql";

constexpr const char* projection = R"sql(
SELECT coalesce(e.text, s.value), count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON
r.correlationId = k.correlationId JOIN NVTX_EVENTS e ON e.globalTid = r.globalTid AND e.start <= r.start AND r.end <= e.end
AND e.eventType = 59 LEFT JOIN StringIds s ON s.id = e.textId GROUP BY 1 ORDER BY 1)sql";

constexpr const char* gaps = R"sql(
SELECT max(gap) FROM (SELECT start - lag(end) OVER (PARTITION BY streamId ORDER BY start) AS gap FROM
CUPTI_ACTIVITY_KIND_KERNEL))sql";

GpuOpRow kernel(RowId id, std::int64_t correlation, const char* name, TimeNs start, TimeNs end) {
    GpuOpRow out{.id = id,
                 .run_id = 1,
                 .phase_id = 4,
                 .stream = 7,
                 .name = name,
                 .start_ns = start,
                 .end_ns = end,
                 .graph_node_id = 0x900000001,
                 .correlation_id = correlation,
                 .grid = "8,2,1",
                 .block = "128,1,1"};
    return out;
}

/// Makes a step with a head and a verify phase that launch kernels, a copy and a fill, and a foreign range.
std::vector<Record> gpu_capture() {
    RunRow run;
    run.id = 1;
    run.started_monotonic = 1000;
    run.target = "target";
    run.tier = "T2";
    run.vocab_id = 1;
    run.machine_json = R"({"pid":4242})";
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 1;
    std::vector<Record> records;
    records.push_back(RunStarted{run, vocab, {1, 1000, 1700000000000000000, std::nullopt}});
    StepRecord step;
    step.step = {1, 1, 0, 100, 1000, 0, Excluded::no};
    const auto span = [](RowId id, int phase, TimeNs start, TimeNs end, int lane) {
        SpanRow out{.id = id,
                    .run_id = 1,
                    .step_id = 1,
                    .phase_id = phase,
                    .level = 2,
                    .lane = lane,
                    .thread_id = 4243,
                    .start_ns = start,
                    .end_ns = end,
                    .rows = 3,
                    .bytes = 77};
        return out;
    };
    step.spans = {span(1, 4, 150, 300, 0), span(2, 3, 120, 400, 1), span(3, 10, 500, 900, 0)};
    records.push_back(step);
    records.push_back(std::vector<NvtxRangeRow>{{1, "CUDA API", "cudaLaunchKernel", 4243, 160, 170, 5},
                                                {1, "CUDA API", "cuGraphLaunch", 4243, 510, 530, 6},
                                                {1, "cublas", "gemm", 4243, 505, 600, 9},
                                                {1, "cublas", "note", 4243, 700, 700, 0}});
    GpuOpRow copy = kernel(4, 6, "memcpy device to host", 860, 880);
    copy.grid = copy.block = "";
    copy.bytes = 4096;
    GpuOpRow fill = copy;
    fill.id = 5;
    fill.name = "memset";
    fill.start_ns = 890;
    fill.end_ns = 895;
    records.push_back(std::vector<GpuOpRow>{kernel(1, 5, "void ns::head<float, 2>(float*, int)", 200, 280),
                                            kernel(2, 6, "verify_kernel(float*)", 540, 700),
                                            kernel(3, 6, "verify_kernel(float*)", 750, 850), copy, fill});
    records.push_back(RunEnded{1, RunEnd::ok, 2000, {1, 3000, 1700000000000002000, std::nullopt}});
    return records;
}

TEST(ExportNsys, RunsNsysReports) {
    const ScratchFolder folder;
    write_all(folder.file("a.dscope"), gpu_capture());
    ASSERT_TRUE(is_ok(export_nsys(folder.file("a.dscope"), folder.file("a.sqlite"))));
    const storage::Database db = open_plain(folder.file("a.sqlite"));
    using Rows = std::vector<std::string>;
    EXPECT_EQ(query(db, nvtx_sum),
              (Rows{"cublas:gemm|PushPop|1|95|95|95", "draftscope:head|PushPop|1|150|150|150",
                    "draftscope:router|StartEnd|1|280|280|280", "draftscope:step|PushPop|1|900|900|900",
                    "draftscope:verify|PushPop|1|400|400|400"}));
    EXPECT_EQ(query(db, kern_sum), (Rows{"verify_kernel|2|260|76.471", "head|1|80|23.529"}));
    EXPECT_EQ(query(db, launch_latency),
              (Rows{"cudaLaunchKernel|40", "cuGraphLaunch|30", "cuGraphLaunch|240"}));
    EXPECT_EQ(query(db, projection), (Rows{"gemm|2", "head|1", "step|3", "verify|2"}));
    EXPECT_EQ(query(db, gaps), (Rows{"260"}));
    EXPECT_EQ(query(db,
                    "SELECT e.label, sum(m.bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN "
                    "ENUM_CUDA_MEMCPY_OPER e ON e.id = m.copyKind GROUP BY 1"),
              (Rows{"Device-to-Host|4096"}));
    EXPECT_EQ(query(db,
                    "SELECT globalTid / 0x1000000 % 0x1000000, globalTid % 0x1000000 FROM "
                    "CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1"),
              (Rows{"4242|4243"}));
    EXPECT_EQ(query(db,
                    "SELECT demangledName = (SELECT id FROM StringIds WHERE value LIKE 'void ns%'), gridX, "
                    "gridY, blockX, graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start LIMIT 1"),
              (Rows{"1|8|2|128|38654705665"}));
    EXPECT_EQ(query(db, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"),
              (Rows{"1700000000000000000"}));
    EXPECT_EQ(query(db, "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_NAME'"),
              (Rows{"Draftscope"}));
    EXPECT_EQ(query(db,
                    "SELECT json_extract(jsonText, '$.bytes'), category, color FROM NVTX_EVENTS e JOIN "
                    "StringIds s ON s.id = e.textId WHERE s.value = 'head' AND eventType = 59"),
              (Rows{"77|4|4292173312"}));
    EXPECT_EQ(query(db, "SELECT DISTINCT phase FROM DRAFTSCOPE_GPU_PHASES"), (Rows{"head"}));
    EXPECT_EQ(query(db, "SELECT eventType, end FROM NVTX_EVENTS WHERE text = 'note'"), (Rows{"34|"}));
    EXPECT_EQ(query(db, "SELECT group_concat(eventClass) FROM CUPTI_ACTIVITY_KIND_RUNTIME"), (Rows{"0,1"}));
    EXPECT_EQ(query(db, "SELECT count(*) FROM sqlite_master WHERE type != 'table'"), (Rows{"0"}));
}

TEST(ExportNsys, OmitsEmptyActivityTables) {
    const ScratchFolder folder;
    std::vector<Record> records = gpu_capture();
    std::erase_if(records, [](const Record& record) {
        return std::holds_alternative<std::vector<GpuOpRow>>(record) ||
               std::holds_alternative<std::vector<NvtxRangeRow>>(record);
    });
    write_all(folder.file("a.dscope"), records);
    ASSERT_TRUE(export_nsys(folder.file("a.dscope"), folder.file("a.sqlite")).ok());
    const storage::Database db = open_plain(folder.file("a.sqlite"));
    EXPECT_EQ(
        query(db, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'CUPTI%' OR name = 'TARGET_INFO_GPU'"),
        (std::vector<std::string>{"0"}));
    const Status again = export_nsys(folder.file("a.dscope"), folder.file("a.sqlite"));
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().kind, ErrorKind::bad_input);
}

TEST(ExportNsys, RandomCapturesKeepEveryRow) {
    for (const std::uint64_t seed : {31u, 32u, 33u}) {
        const ScratchFolder folder;
        const std::vector<Record> records = RandomCapture(seed, {2, 3, 8, 2, true}).records();
        write_all(folder.file("a.dscope"), records);
        ASSERT_TRUE(is_ok(export_nsys(folder.file("a.dscope"), folder.file("a.sqlite"))));
        const Snapshot live = apply_all(records);
        const storage::Database db = open_plain(folder.file("a.sqlite"));
        const auto count = [&](const char* sql) { return db.integer(sql).value_or(-1); };
        EXPECT_EQ(
            count("SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60) AND (domainId != 1)"),
            static_cast<std::int64_t>(live.nvtx_ranges.size()));
        EXPECT_EQ(count("SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND domainId = 1"),
                  static_cast<std::int64_t>(live.spans.size() + live.steps.size()));
        EXPECT_EQ(count("SELECT count(*) FROM DRAFTSCOPE_ROUNDS"),
                  static_cast<std::int64_t>(live.rounds.size()));
        EXPECT_EQ(count("SELECT count(*) FROM DRAFTSCOPE_GPU_PHASES"),
                  static_cast<std::int64_t>(live.gpu_ops.size()));
        // Names are exported unchanged, whatever they contain.
        EXPECT_EQ(count("SELECT count(*) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId WHERE "
                        "eventType IN (59, 60) AND coalesce(e.text, s.value) IS NULL"),
                  0);
    }
}

}  // namespace
}  // namespace draftscope
