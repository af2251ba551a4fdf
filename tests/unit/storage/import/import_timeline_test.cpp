#include "storage/import/import_timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/phase_names.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/storage/file_helpers.h"
#include "tests/unit/storage/random_capture.h"

namespace draftscope {
namespace {

using testing::open_plain;
using testing::ScratchFolder;
using testing::write_all;

std::string phase_text(int id) {
    return std::string(phase_rows[id].name);
}

/// Makes a small export as Nsight Systems writes it, with the columns of an older version: no graphNodeId, no
/// binaryData.
void make_nsys(const std::string& path) {
    const storage::Database db = open_plain(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    const std::string tid = "(77 << 24 | 78)", pid = "(77 << 24)";
    const std::string sql =
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);INSERT INTO StringIds VALUES (1, "
        "'Draft/Head'), (2, 'cudaLaunchKernel_v7000'), (3, 'gemv'),  (4, 'void gemv<float>(float*)'), (5, "
        "'cudaGraphLaunch_v10000');CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType "
        "INTEGER NOT NULL, text TEXT,   globalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value "
        "INTEGER);INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'engine', " +
        tid + ", NULL, 3, NULL),  (1000, 9000, 59, 'step', " + tid +
        ", NULL, 3, 0), (1500, 4000, 59, NULL, " + tid + ", 1, 3, 7),  (4500, 8000, 59, 'verify', " + tid +
        ", NULL, 3, 7), (5000, 6000, 59, 'unrelated', " + tid +
        ", NULL, 0, NULL),  (8500, NULL, 34, 'marker', " + tid +
        ", NULL, 3, NULL), (8600, NULL, 59, 'still open', " + tid +
        ", NULL, 3, NULL);CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid "
        "INTEGER, correlationId INTEGER,   nameId INTEGER);INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES "
        "(2000, 2100, " +
        tid + ", 11, 2), (5100, 5200, " + tid +
        ", 12, 5);CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, streamId INTEGER, "
        "correlationId INTEGER,   globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX "
        "INTEGER, gridY INTEGER, gridZ INTEGER,   blockX INTEGER, blockY INTEGER, blockZ INTEGER);"
        // The head's kernel runs while the host is already in verify. Its launch determines its phase.
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (4600, 4900, 7, 11, " +
        pid + ", 4, 3, 8, 1, 1, 128, 1, 1),  (5300, 7000, 7, 12, " + pid +
        ", 4, 3, 16, 1, 1, 256, 1, 1),  (9500, 9600, 7, 99, " + pid +
        ", 4, 3, 1, 1, 1, 1, 1, 1);CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, "
        "streamId INTEGER, correlationId INTEGER,   globalPid INTEGER, bytes INTEGER, copyKind "
        "INTEGER);INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (7100, 7200, 7, 12, " +
        pid + ", 640, 2);";
    ASSERT_EQ(db.exec(sql), SQLITE_OK) << db.message();
}

TEST(PhaseOfRangeName, MapsOurNamesAndSynonyms) {
    const std::pair<const char*, const char*> good[] = {{"head", "head"},
                                                        {"Draft/Head", "head"},
                                                        {"draft.lm_head", "head"},
                                                        {"spec::verify #12", "verify"},
                                                        {"target_verify", "verify"},
                                                        {"top_k", "topk"},
                                                        {"draft", "backbone"},
                                                        {"KV_compaction", "commit"},
                                                        {"prefill", "prefill"},
                                                        {"rejection_sampler", "accept"},
                                                        {"softmax [3]", "softmax"}};
    for (const auto& [name, phase] : good) {
        const auto found = phase_for_range_name(name);
        ASSERT_TRUE(found) << name;
        EXPECT_EQ(phase_text(*found), phase) << name;
    }
    for (const char* name : {"", "none", "remainder", "overhead", "aten::topk", "headline", "####"})
        EXPECT_FALSE(phase_for_range_name(name)) << name;
    EXPECT_TRUE(is_step_range_name("ProfilerStep#3"));
    EXPECT_TRUE(is_step_range_name("decode/step"));
    EXPECT_FALSE(is_step_range_name("stepper"));
}

TEST(ImportTimeline, ReadsNsysWithOldColumns) {
    const ScratchFolder folder;
    make_nsys(folder.file("a.sqlite"));
    EXPECT_EQ(detect_timeline_format(folder.file("a.sqlite")), TimelineFormat::nsys);
    const auto imported = require(import_timeline(folder.file("a.sqlite")));
    const Snapshot& shot = *imported;
    ASSERT_EQ(shot.steps.size(), 1u);
    EXPECT_EQ(shot.steps[0].row.start_ns, 0);
    EXPECT_EQ(shot.steps[0].row.end_ns, 8000);
    ASSERT_EQ(shot.spans.size(), 2u);
    EXPECT_EQ(phase_text(shot.spans[0].phase_id), "head");
    EXPECT_EQ(shot.spans[0].start_ns, 500);
    EXPECT_EQ(shot.spans[0].step_id, 1);
    EXPECT_EQ(phase_text(shot.spans[1].phase_id), "verify");
    ASSERT_EQ(shot.gpu_ops.size(), 4u);
    EXPECT_EQ(phase_text(shot.gpu_ops[0].phase_id), "head");
    EXPECT_EQ(shot.gpu_ops[0].name, "void gemv<float>(float*)");
    EXPECT_EQ(shot.gpu_ops[0].grid, "8,1,1");
    EXPECT_EQ(shot.gpu_ops[0].step_id, 1);
    EXPECT_EQ(phase_text(shot.gpu_ops[1].phase_id), "verify");
    EXPECT_EQ(shot.gpu_ops[2].name, "memcpy device to host");
    EXPECT_EQ(shot.gpu_ops[2].bytes, 640);
    EXPECT_EQ(shot.gpu_ops[3].phase_id, 0);
    ASSERT_EQ(shot.nvtx_ranges.size(), 5u);  // step, unrelated, marker, two calls
    EXPECT_EQ(shot.nvtx_ranges[0].domain, "engine");
    EXPECT_EQ(shot.nvtx_ranges[1].name, "unrelated");
    EXPECT_EQ(shot.nvtx_ranges[3].domain, "CUDA API");
    ASSERT_EQ(shot.losses.size(), 1u);
    EXPECT_EQ(shot.losses[0].count, 1);
    EXPECT_EQ(shot.runs[0].frontend, "import");
    EXPECT_EQ(shot.source, folder.file("a.sqlite"));
}

TEST(ImportTimeline, RoundTripsOurNsysExport) {
    const ScratchFolder folder;
    write_all(folder.file("a.dscope"), testing::RandomCapture(5, {1, 2, 10, 1, true}).records());
    EXPECT_EQ(detect_timeline_format(folder.file("a.dscope")), TimelineFormat::none);
    ASSERT_TRUE(export_nsys(folder.file("a.dscope"), folder.file("a.sqlite")).ok());
    const auto imported = require(import_timeline(folder.file("a.sqlite")));
    const auto original = require(load_capture(folder.file("a.dscope")));
    EXPECT_EQ(imported->spans.size(), original->spans.size());
    EXPECT_EQ(imported->gpu_ops.size(), original->gpu_ops.size());
    // A thread keeps the system's number, not the one that the export assigns.
    EXPECT_EQ(imported->spans[0].thread_id, original->spans[0].thread_id);
    std::map<int, TimeNs> ours, theirs;
    for (std::size_t i = 0; i < original->spans.size(); ++i) {
        const SpanRow& span = original->spans[i];
        ours[span.phase_id] += span.end_ns - span.start_ns;
    }
    for (std::size_t i = 0; i < imported->spans.size(); ++i) {
        const SpanRow& span = imported->spans[i];
        theirs[span.phase_id] += span.end_ns - span.start_ns;
    }
    EXPECT_EQ(ours, theirs);
}

TEST(ImportTimeline, ReadsKinetoWithGpu) {
    const ScratchFolder folder;
    testing::write_text(folder.file("t.json"),
                        R"({"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000,
"deviceProperties": [{"id": 0, "name": "H200"}],
"traceEvents": [
 {"ph":"X","cat":"user_annotation","name":"spec/verify","pid":1,"tid":10,"ts":100.0,"dur":50.5},
 {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":10,"ts":110.0,"dur":2,"args":{"correlation":7}},
 {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":160.25,"dur":3.125,
  "args":{"correlation":7,"stream":7,"device":0,"grid":[4,1,1],"block":[32,1,1]}},
 {"ph":"X","cat":"gpu_user_annotation","name":"draft/head","pid":0,"tid":9,"ts":200,"dur":20,"args":{"stream":9}},
 {"ph":"X","cat":"kernel","name":"head_kernel","pid":0,"tid":9,"ts":205,"dur":3,"args":{"stream":9}},
 {"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoH","pid":0,"tid":7,"ts":210,"dur":1,"args":{"bytes":128,"stream":7}},
 {"ph":"X","cat":"kernel","name":"no time","pid":0,"tid":7},
 {"ph":"i","name":"mark","pid":0,"tid":7,"ts":1},
 {"ph":"X","cat":"python_function","name":"f","pid":1,"tid":10,"ts":1.0,"dur":1}
]})");
    const auto imported = require(import_timeline(folder.file("t.json")));
    const Snapshot& shot = *imported;
    ASSERT_EQ(shot.spans.size(), 1u);
    EXPECT_EQ(shot.spans[0].end_ns, 50500);
    ASSERT_EQ(shot.gpu_ops.size(), 3u);
    EXPECT_EQ(shot.gpu_ops[0].start_ns, 60250);
    EXPECT_EQ(shot.gpu_ops[0].end_ns, 63375);
    EXPECT_EQ(phase_text(shot.gpu_ops[0].phase_id), "verify");
    EXPECT_EQ(shot.gpu_ops[0].grid, "4,1,1");
    EXPECT_EQ(phase_text(shot.gpu_ops[1].phase_id), "head");
    EXPECT_EQ(shot.gpu_ops[2].bytes, 128);
    ASSERT_EQ(shot.losses.size(), 1u);
    EXPECT_EQ(shot.losses[0].count, 1);
    EXPECT_EQ(shot.anchors[0].utc_ns, 1700000000000100000);
}

TEST(ImportTimeline, ReadsTorchProfilerFile) {
    const auto imported =
        require(import_timeline(std::string(DS_SOURCE_DIR) + "/tests/golden/traces/torch_profiler.json.gz"));
    const Snapshot& shot = *imported;
    EXPECT_EQ(shot.steps.size(), 3u);
    ASSERT_EQ(shot.spans.size(), 12u);
    const char* names[] = {"backbone", "head", "topk", "verify"};
    for (std::size_t i = 0; i < shot.spans.size(); ++i) {
        EXPECT_EQ(phase_text(shot.spans[i].phase_id), names[i % 4]);
        EXPECT_EQ(shot.spans[i].step_id, static_cast<RowId>(i / 4 + 1));
        const StepRow& step = shot.steps[i / 4].row;
        EXPECT_GE(shot.spans[i].start_ns, step.start_ns);
        EXPECT_LE(shot.spans[i].end_ns, step.end_ns);
    }
    EXPECT_GT(shot.nvtx_ranges.size(), 20u);  // the operators
}

/// One step with a head, in which `more` are further events.
std::string trace_of(const std::string& more) {
    return R"({"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "step", "pid": 1, "tid": 1, "ts": 100.0, "dur": 50.0},
)" + more + R"(,
{"ph": "X", "cat": "user_annotation", "name": "draft/head", "pid": 1, "tid": 1, "ts": 110.0, "dur": 20.0}
], "baseTimeNanoseconds": 1700000000000000000})";
}

std::string event_of(const std::string& members) {
    return R"({"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, )" + members + "}";
}

TEST(ImportTimeline, ADamagedEventCostsItselfOnly) {
    const std::string fine = R"("name": "a", "ts": 131, "dur": 1)";
    struct Case {
        const char* name;
        std::string events;
        std::int64_t skipped;
        const char* reason;
    };
    const Case cases[] = {
        {"byte", event_of("\"name\": \"\xFF\x01\", \"ts\": 131, \"dur\": 1"), 1, "ill-formed UTF-8"},
        {"line feed", event_of("\"name\": \"a\nb\", \"ts\": 131, \"dur\": 1"), 1, "control character"},
        {"inner quotes", event_of(R"("name": "a "b" c", "ts": 131, "dur": 1)"), 1, "literal"},
        {"one inner quote", event_of(R"("name": "a"b", "ts": 131, "dur": 1)"), 1, "literal"},
        {"brackets in it", event_of(R"("name": "a"b}]{[", "ts": 131, "dur": 1)"), 2, "literal"},
        {"inf", event_of(fine + R"(, "args": {"blocks per SM": inf})"), 1, "literal"},
        {"Infinity", event_of(fine + R"(, "args": {"blocks per SM": -Infinity})"), 1, "number"},
        {"NaN", event_of(fine + R"(, "args": {"list": [{"a": 1}, {"b": NaN}]})"), 2, "literal"},
        {"text time", event_of(R"("name": "a", "ts": "131", "dur": 1)"), 1, "ts is not"},
        {"huge time", event_of(R"("name": "a", "ts": 1e300, "dur": 1)"), 1, "ts is not"},
        {"text length", event_of(R"("name": "a", "ts": 1, "dur": "x")"), 1, "dur is not"},
        {"negative length", event_of(R"("name": "a", "ts": 1, "dur": -1)"), 1, "dur is not"},
        {"two", event_of(R"("name": "a"b", "ts": 1, "dur": 1)") + ",\n" + event_of(R"("ts": 1, "dur": inf)"),
         2, "literal"},
        {"an end alone", R"({"ph": "E", "pid": 1, "tid": 1, "ts": 120})", 1, "without its begin"},
        {"a begin alone", R"({"ph": "B", "name": "x", "pid": 1, "tid": 1, "ts": 120})", 1, "without its end"},
        {"nothing", event_of(R"("name": "},{]\"", "ts": 131, "dur": 1)"), 0, ""},
    };
    const ScratchFolder folder;
    for (const Case& one : cases) {
        testing::write_text(folder.file("t.json"), trace_of(one.events));
        const auto imported = require(import_timeline(folder.file("t.json")));
        ASSERT_EQ(imported->spans.size(), 1u) << one.name;
        EXPECT_EQ(imported->spans[0].end_ns - imported->spans[0].start_ns, 20000) << one.name;
        EXPECT_EQ(imported->spans[0].start_ns - imported->steps[0].row.start_ns, 10000) << one.name;
        EXPECT_NE(imported->anchors[0].utc_ns, 0) << one.name << ": what follows the events is read";
        ASSERT_EQ(imported->losses.size(), one.skipped > 0 ? 1u : 0u) << one.name;
        ASSERT_EQ(imported->notes.size(), imported->losses.size()) << one.name;
        if (one.skipped == 0) continue;
        EXPECT_EQ(imported->losses[0].count, one.skipped) << one.name;
        const std::string& note = imported->notes[0].text;
        EXPECT_NE(note.find(fmt::format("skipped {} of its events", one.skipped)), std::string::npos) << note;
        EXPECT_NE(note.find(one.reason), std::string::npos) << note;
        EXPECT_TRUE(std::ranges::all_of(note, [](unsigned char c) { return c >= ' ' && c < 0x7F; })) << note;
    }
}

TEST(ImportTimeline, ReadsWhatIsLeftOfACutFile) {
    const ScratchFolder folder;
    const std::string whole = trace_of(event_of(R"("name": "a", "ts": 131, "dur": 1)"));
    const std::string events = whole.substr(whole.find('[') + 1);
    const auto spans = [&](const std::string& text) {
        testing::write_text(folder.file("t.json"), text);
        const auto imported = require(import_timeline(folder.file("t.json")));
        return std::pair(imported->spans.size(), imported->losses.empty() ? 0 : imported->losses[0].count);
    };
    const std::size_t last = whole.rfind("{\"ph\""), end = whole.rfind(']');
    EXPECT_EQ(spans(whole), std::pair(std::size_t{1}, std::int64_t{0}));
    EXPECT_EQ(spans(whole.substr(0, end)), std::pair(std::size_t{1}, std::int64_t{0}))
        << "no end of the array";
    EXPECT_EQ(spans(whole.substr(0, end - 20)), std::pair(std::size_t{0}, std::int64_t{1}));
    EXPECT_EQ(spans(whole.substr(0, last)), std::pair(std::size_t{0}, std::int64_t{0}));
    EXPECT_EQ(spans("[" + events.substr(0, events.rfind(']'))), std::pair(std::size_t{1}, std::int64_t{0}))
        << "a bare array, whose end may be absent";
    const std::string packed = folder.file("t.json.gz");
    const gzFile file = gzopen(packed.c_str(), "wb");
    gzwrite(file, whole.data(), static_cast<unsigned>(whole.size()));
    gzclose(file);
    std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 4);
    const auto cut = require(import_timeline(packed));
    EXPECT_EQ(cut->spans.size(), 1u);
    ASSERT_EQ(cut->notes.size(), 1u);
    EXPECT_NE(cut->notes[0].text.find("incomplete"), std::string::npos);
    EXPECT_EQ(spans("\xEF\xBB\xBF [" + events.substr(0, events.rfind(']') + 1) + "\n"),
              std::pair(std::size_t{1}, std::int64_t{0}));
}

TEST(ImportTimeline, KeepsTheNanosecondsOfAbsoluteTimes) {
    const ScratchFolder folder;
    for (const char* base : {"", "1700000000000000", "-5"}) {
        const bool negative = *base == '-';
        const auto at = [&](const std::string& decimals) {
            return negative ? "-" + std::to_string(5 - 1) + "." + decimals
                            : (*base ? base : "0") + ("." + decimals);
        };
        const std::string text = fmt::format(
            R"({{"traceEvents": [{{"ph": "X", "cat": "user_annotation", "name": "step", "ts": {}, "dur": 50.0}},
{{"ph": "X", "cat": "user_annotation", "name": "draft/head", "ts": {}, "dur": 0.120}},
{{"ph": "X", "cat": "user_annotation", "name": "verify", "ts": {}, "dur": 0.100}}]}})",
            at(negative ? "900" : "100"), at(negative ? "770" : "230"), at(negative ? "640" : "360"));
        testing::write_text(folder.file("t.json"), text);
        const auto imported = require(import_timeline(folder.file("t.json")));
        ASSERT_EQ(imported->spans.size(), 2u) << text;
        EXPECT_EQ(imported->spans[0].start_ns, 130) << text;
        EXPECT_EQ(imported->spans[0].end_ns, 250) << text;
        EXPECT_EQ(imported->spans[1].start_ns, 260) << text;
        EXPECT_EQ(imported->spans[1].end_ns, 360) << text;
    }
}

TEST(ImportTimeline, ReadsChromesEvents) {
    const ScratchFolder folder;
    testing::write_text(folder.file("t.json"), R"([
{"ph": "M", "name": "process_name", "pid": "app", "args": {"name": "x"}},
{"ph": "B", "name": "step", "pid": "app", "tid": "main", "ts": 1.5},
{"ph": "B", "name": "draft/head", "cat": "blink,cc", "pid": "app", "tid": "main", "ts": 2},
{"ph": "B", "name": "inner", "pid": "app", "tid": "main", "ts": 2},
{"ph": "E", "pid": "app", "tid": "main", "ts": 3},
{"ph": "B", "name": "verify", "pid": "app", "tid": 7, "ts": 2.25},
{"ph": "E", "pid": "app", "tid": "main", "ts": 4},
{"ph": "E", "pid": "app", "tid": "7", "ts": 5},
{"ph": "X", "name": "topk", "pid": 2, "tid": 7, "ts": 6, "dur": 1},
{"ph": "E", "name": "step", "pid": "app", "tid": "main", "ts": 9},
{"ph": "b", "name": "request", "id": 1, "ts": 1}, {"ph": "e", "name": "request", "id": 1, "ts": 9},
{"ph": "i", "name": "mark", "ts": 1}
])");
    const auto imported = require(import_timeline(folder.file("t.json")));
    ASSERT_EQ(imported->steps.size(), 1u);
    EXPECT_EQ(imported->steps[0].row.end_ns, 7500);
    ASSERT_EQ(imported->spans.size(), 3u);
    EXPECT_EQ(phase_text(imported->spans[0].phase_id), "head");
    EXPECT_EQ(imported->spans[0].start_ns, 500);
    EXPECT_EQ(imported->spans[0].end_ns, 2500);
    EXPECT_EQ(phase_text(imported->spans[1].phase_id), "verify");
    EXPECT_EQ(imported->spans[1].thread_id, 7);
    EXPECT_EQ(imported->spans[1].end_ns, 3500);
    EXPECT_EQ(phase_text(imported->spans[2].phase_id), "topk");
    EXPECT_NE(imported->spans[2].thread_id, 7) << "another process";
    EXPECT_NE(imported->spans[0].thread_id, imported->spans[2].thread_id);
    EXPECT_TRUE(imported->losses.empty());
    ASSERT_EQ(imported->notes.size(), 1u);
    EXPECT_NE(imported->notes[0].text.find("2 asynchronous events"), std::string::npos)
        << imported->notes[0].text;
}

TEST(ImportTimeline, NamesWhatMustBeConverted) {
    const ScratchFolder folder;
    const auto refused = [&](const std::string& name, const std::string& bytes, const std::string& remedy) {
        testing::write_text(folder.file(name), bytes);
        EXPECT_NE(detect_timeline_format(folder.file(name)), TimelineFormat::none) << name;
        const auto imported = import_timeline(folder.file(name));
        ASSERT_FALSE(imported.ok()) << name;
        EXPECT_EQ(imported.error().kind, ErrorKind::bad_input);
        EXPECT_NE(imported.error().message.find(remedy), std::string::npos) << imported.error().message;
    };
    refused("a",
            std::string("\x0a\x0d\x1a\x0b"
                        "0123456789",
                        14),
            "traceconv json");
    refused("b", std::string("\x0a{\x08\x01", 4) + std::string(120, 'x'), "traceconv json");
    refused("c.pftrace", "x", "traceconv json");
    refused("d.json.zst", "\x28\xB5\x2F\xFD rest", "unpack it first");
    refused("e.zip", "PK\x03\x04 rest", "unpack it first");
    testing::write_text(folder.file("f.json"),
                        "\n" + trace_of(event_of(R"("name": "a", "ts": 1, "dur": 1)")));
    EXPECT_TRUE(import_timeline(folder.file("f.json")).ok());
}

TEST(ImportTimeline, RejectsBadFiles) {
    const ScratchFolder folder;
    const auto refused = [&](const std::string& name, const std::string& text) {
        testing::write_text(folder.file(name), text);
        const auto imported = import_timeline(folder.file(name));
        ASSERT_FALSE(imported.ok()) << name;
        EXPECT_EQ(imported.error().kind, ErrorKind::bad_input) << name;
        EXPECT_NE(imported.error().message.find(name), std::string::npos) << imported.error().message;
    };
    refused("cut.json", R"({"traceEvents": [{"ph":"X","ts":1,)");
    refused("other.json", R"({"events": []})");
    refused("empty.json", R"({"traceEvents": []})");
    refused("text.txt", "hello");
    refused("empty", "");
    refused("run.nsys-rep", "\x01\x02");
    refused("not.sqlite", std::string("SQLite format 3\0", 16) + std::string(200, 'x'));
    refused("cut.json.gz", std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x02", 12));
    const storage::Database db =
        open_plain(folder.file("plain.sqlite"), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    ASSERT_EQ(db.exec("CREATE TABLE t(x)"), SQLITE_OK);
    const auto plain = import_timeline(folder.file("plain.sqlite"));
    ASSERT_FALSE(plain.ok());
    EXPECT_NE(plain.error().message.find("NVTX_EVENTS"), std::string::npos);
    EXPECT_FALSE(import_timeline(folder.file("missing")).ok());
}

}  // namespace
}  // namespace draftscope
