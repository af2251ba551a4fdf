#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "capture/queries.h"
#include "capture/token_text.h"
#include "storage/schema.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/storage/file_helpers.h"
#include "tests/unit/storage/random_capture.h"

namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::open_plain;
using testing::parse_csv;
using testing::query;
using testing::RandomCapture;
using testing::read_text;
using testing::ScratchFolder;
using testing::write_all;

std::string read_gzip(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    std::string out(1 << 22, '\0');
    out.resize(std::max(0, gzread(file, out.data(), static_cast<unsigned>(out.size()))));
    gzclose(file);
    return out;
}

class Exports : public ::testing::Test {
  protected:
    void SetUp() override { write_all(path(), records_); }
    std::string path() const { return folder_.file("a.dscope"); }

    ScratchFolder folder_;
    std::vector<Record> records_ = RandomCapture(21, {2, 3, 12, 2, true}).records();
};

TEST_F(Exports, SqliteIsTheSameCaptureInOneFile) {
    const std::string out = folder_.file("copy.dscope");
    ASSERT_TRUE(is_ok(export_sqlite(path(), out, false)));
    const auto loaded = require(load_capture(out));
    expect_equal(apply_all(records_), *loaded);
    EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
}

TEST_F(Exports, SqliteCopiesALiveFileWithItsLog) {
    const std::string live = folder_.file("live.dscope");
    auto writer = require(CaptureWriter::create(live, false));
    for (const Record& record : records_) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    ASSERT_TRUE(export_sqlite(live, folder_.file("copy.dscope"), false).ok());
    const auto loaded = require(load_capture(folder_.file("copy.dscope")));
    expect_equal(apply_all(records_), *loaded);
}

TEST_F(Exports, WithoutTextNothingPrivateIsLeftInTheBytes) {
    const std::string out = folder_.file("shared.dscope");
    ASSERT_TRUE(export_sqlite(path(), out, true).ok());
    const std::string bytes = read_text(out);
    EXPECT_EQ(bytes.find("rivers"), std::string::npos);
    EXPECT_EQ(bytes.find("Rivers"), std::string::npos);
    EXPECT_EQ(bytes.find("look, here"), std::string::npos);
    const auto loaded = require(load_capture(out));
    EXPECT_EQ(loaded->rounds.size(), apply_all(records_).rounds.size());
    EXPECT_EQ(loaded->prompts[0]->text, "");
    EXPECT_EQ(loaded->notes.size(), 0u);
}

TEST_F(Exports, RefuseToReplaceAFile) {
    for (const bool chrome : {false, true}) {
        const Status done =
            chrome ? export_chrome(path(), path(), false) : export_sqlite(path(), path(), false);
        ASSERT_FALSE(done.ok());
        EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
    }
    const Status folder = export_csv(path(), path(), false);
    ASSERT_FALSE(folder.ok());
    EXPECT_EQ(folder.error().kind, ErrorKind::bad_input);
}

TEST_F(Exports, CsvHasEveryTableAndViewAndReadsBack) {
    const std::string out = folder_.file("csv");
    ASSERT_TRUE(is_ok(export_csv(path(), out, false)));
    const storage::Database db = open_plain(path());
    std::vector<std::string_view> names;
    for (const auto& [table, since] : storage::table_names())
        if (table != storage::dropped_table) names.push_back(table);
    names.insert(names.end(), storage::view_names.begin(), storage::view_names.end());
    for (const std::string_view name : names) {
        const auto rows = parse_csv(read_text(fmt::format("{}/{}.csv", out, name)));
        const auto count = db.integer(fmt::format("SELECT count(*) FROM {}", name));
        ASSERT_GE(rows.size(), 1u) << name;
        EXPECT_EQ(static_cast<std::int64_t>(rows.size()) - 1, count.value_or(-1)) << name;
        for (const auto& row : rows) ASSERT_EQ(row.size(), rows[0].size()) << name;
    }
    const auto prompts = parse_csv(read_text(out + "/prompt.csv"));
    const Snapshot live = apply_all(records_);
    const auto text = static_cast<std::size_t>(std::find(prompts[0].begin(), prompts[0].end(), "text") -
                                               prompts[0].begin());
    for (std::size_t i = 0; i < live.prompts.size(); ++i)
        EXPECT_EQ(prompts[i + 1][text], live.prompts[i]->text);
    const auto counters = parse_csv(read_text(out + "/counter.csv"));
    for (std::size_t i = 0; i < live.counters.size(); ++i)
        EXPECT_EQ(std::stod(counters[i + 1][3]), live.counters[i].value);
    const Status again = export_csv(path(), out, false);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().kind, ErrorKind::bad_input);
    EXPECT_NE(again.error().message.find(".csv: the file exists"), std::string::npos)
        << again.error().message;
}

/// Returns a value of a CSV file by row (0 = first below the header) and column name.
std::string csv_cell(const std::vector<std::vector<std::string>>& rows, std::size_t row,
                     std::string_view column) {
    const auto at = std::find(rows[0].begin(), rows[0].end(), column);
    if (at == rows[0].end()) return fmt::format("no column {}", column);
    return rows.at(row + 1).at(static_cast<std::size_t>(at - rows[0].begin()));
}

TEST_F(Exports, MarkLossyRuns) {
    struct Rule {
        const char *verify, *acceptance;
        double temperature;
        const char* config = "{}";  ///< as written by an older version
    };
    for (const Rule& rule :
         {Rule{"match", "real", 0.0}, Rule{"match", "real", 1.0}, Rule{"pq", "real", 0.7},
          Rule{"typical", "real", 0.0}, Rule{"typical", "real", 0.7}, Rule{"match", "replayed", 0.0},
          Rule{"pq", "replayed", 1.0}, Rule{"later", "real", 0.7, R"({"losslessness":"exact"})"},
          Rule{"later", "real", 0.7, R"({"losslessness":"distribution"})"},
          Rule{"later", "real", 0.0, R"({"losslessness":"lossy"})"},
          Rule{"pq", "real", 0.7, R"({"losslessness":7})"}, Rule{"pq", "real", 0.7, "no JSON"}}) {
        SCOPED_TRACE(fmt::format("{} {} {} {}", rule.verify, rule.acceptance, rule.temperature, rule.config));
        const ScratchFolder folder;
        std::vector<Record> records = records_;
        RunRow run;
        for (Record& record : records)
            if (auto* started = std::get_if<RunStarted>(&record)) {
                started->run.verify = rule.verify;
                started->run.acceptance = rule.acceptance;
                started->run.temperature = rule.temperature;
                started->run.config_json = rule.config;
                run = started->run;
            }
        const bool lossy = losslessness(run) == "lossy";
        const std::string word = lossy                                 ? "LOSSY"
                                 : losslessness(run) == "distribution" ? "in distribution"
                                                                       : "exact";
        const std::string file = folder.file("a.dscope"), csv = folder.file("csv"),
                          trace = folder.file("trace.json"), nsys = folder.file("a.sqlite");
        write_all(file, records);
        ASSERT_TRUE(export_csv(file, csv, false).ok());
        for (const char* name : {"run", "v_prompt", "v_round", "v_head", "v_category", "v_coverage"}) {
            const auto rows = parse_csv(read_text(fmt::format("{}/{}.csv", csv, name)));
            ASSERT_GT(rows.size(), 1u) << name;
            for (std::size_t i = 0; i + 1 < rows.size(); ++i)
                EXPECT_EQ(csv_cell(rows, i, "losslessness"), word) << name;
        }
        // Tables of times don't depend on the acceptance rule, so they have no losslessness column.
        EXPECT_EQ(read_text(csv + "/v_phase.csv").find("losslessness"), std::string::npos);
        EXPECT_EQ(read_text(csv + "/round.csv").find("losslessness"), std::string::npos);
        ASSERT_TRUE(export_chrome(file, trace, false).ok());
        EXPECT_EQ(read_text(trace).find("LOSSY") != std::string::npos, lossy);
        ASSERT_TRUE(export_nsys(file, nsys).ok());
        const auto texts =
            query(open_plain(nsys),
                  "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE 'DRAFTSCOPE_RUN_%_VERIFY'");
        ASSERT_FALSE(texts.empty());
        for (const std::string& value : texts) {
            EXPECT_EQ(value.find("LOSSY") != std::string::npos, lossy) << value;
            EXPECT_EQ(value.find("acceptance replayed") != std::string::npos, run.acceptance != "real");
        }
        EXPECT_EQ(read_text(trace).find("replayed acceptance") != std::string::npos,
                  run.acceptance != "real");
    }
}

TEST_F(Exports, CsvWithoutTextHasEmptyColumns) {
    const std::string out = folder_.file("csv");
    ASSERT_TRUE(export_csv(path(), out, true).ok());
    for (const auto& entry : std::filesystem::directory_iterator(out)) {
        const std::string text = read_text(entry.path().string());
        EXPECT_EQ(text.find("ivers"), std::string::npos) << entry.path();
        EXPECT_EQ(text.find("look, here"), std::string::npos) << entry.path();
    }
}

/// Returns a member's text. (If compared as JSON, a literal becomes a temporary that GCC 12 warns about.)
std::string text_of(const nlohmann::json& event, const char* key) {
    return event.at(key).get<std::string>();
}

/// Checks flow arrows: one start and one end per id, each inside a slice of its thread, the end not before
/// the start.
void expect_good_flows(const nlohmann::json& trace) {
    std::map<std::int64_t, std::vector<nlohmann::json>> flows;
    for (const nlohmann::json& event : trace.at("traceEvents"))
        if (text_of(event, "ph") == "s" || text_of(event, "ph") == "f")
            flows[event.at("id")].push_back(event);
    const auto in_slice = [&](const nlohmann::json& end) {
        const double at = end.at("ts");
        for (const nlohmann::json& slice : trace.at("traceEvents"))
            if (text_of(slice, "ph") == "X" && slice.at("tid") == end.at("tid") &&
                slice.at("ts").get<double>() <= at &&
                at <= slice.at("ts").get<double>() + slice.at("dur").get<double>())
                return true;
        return false;
    };
    for (const auto& [id, ends] : flows) {
        ASSERT_EQ(ends.size(), 2u) << id;
        EXPECT_EQ(text_of(ends[0], "ph"), "s");
        EXPECT_EQ(text_of(ends[1], "ph"), "f");
        EXPECT_EQ(text_of(ends[1], "bp"), "e");
        EXPECT_EQ(text_of(ends[0], "cat"), text_of(ends[1], "cat"));
        EXPECT_EQ(text_of(ends[0], "name"), text_of(ends[1], "name"));
        EXPECT_LE(ends[0].at("ts").get<double>(), ends[1].at("ts").get<double>());
        for (const nlohmann::json& end : ends) EXPECT_TRUE(in_slice(end)) << end.dump();
    }
}

/// Checks what trace viewers need, as the description of the Trace Event format states: fields by event kind,
/// nesting per track, unique thread ids, numeric counters, paired asynchronous events.
void expect_good_trace(const nlohmann::json& trace, std::map<std::string, int>& kinds) {
    std::map<std::string, int> open_async;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
        const std::string kind = event.at("ph");
        if (kind == "C") {
            ASSERT_FALSE(event.at("args").empty());
            for (const nlohmann::json& value : event.at("args")) ASSERT_TRUE(value.is_number());
        }
        if (kind == "i") {
            ASSERT_NE(std::string("gpt").find(text_of(event, "s")), std::string::npos);
        }
        if (kind != "b" && kind != "e") continue;
        int& open = open_async[event.at("cat").get<std::string>() + event.at("id").dump()];
        open += kind == "b" ? 1 : -1;
        ASSERT_GE(open, 0);
    }
    for (const auto& [id, open] : open_async) ASSERT_EQ(open, 0) << id;
    expect_good_flows(trace);
    std::map<std::int64_t, std::int64_t> process_of_thread;
    std::map<std::int64_t, std::vector<std::pair<double, double>>> slices;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
        const std::string kind = event.at("ph");
        ++kinds[kind];
        ASSERT_TRUE(event.at("pid").is_number_integer());
        ASSERT_TRUE(event.at("name").is_string());
        ASSERT_EQ(kind != "M", event.contains("ts"));
        if (event.contains("tid")) {
            const auto [found, added] = process_of_thread.try_emplace(event["tid"], event["pid"]);
            ASSERT_EQ(found->second, event["pid"].get<std::int64_t>()) << "thread id used by two processes";
        }
        if (kind != "X") continue;
        const double start = event.at("ts"), end = start + event.at("dur").get<double>();
        auto& open = slices[event.at("tid")];
        while (!open.empty() && open.back().second <= start + 1e-6) open.pop_back();
        ASSERT_TRUE(open.empty() || end <= open.back().second + 1e-6) << "slices overlap on one track";
        open.push_back({start, end});
    }
}

TEST_F(Exports, ChromeTraceIsValid) {
    const std::string out = folder_.file("trace.json");
    ASSERT_TRUE(is_ok(export_chrome(path(), out, false)));
    const nlohmann::json trace = nlohmann::json::parse(read_text(out), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::map<std::string, int> kinds;
    expect_good_trace(trace, kinds);
    const Snapshot live = apply_all(records_);
    EXPECT_EQ(kinds["X"], static_cast<int>(live.steps.size() + live.spans.size() + live.gpu_ops.size() +
                                           live.nvtx_ranges.size()));
    EXPECT_EQ(kinds["b"], static_cast<int>(live.rounds.size()));
    EXPECT_EQ(kinds["e"], static_cast<int>(live.rounds.size()));
    EXPECT_EQ(kinds["C"], static_cast<int>(3 * live.rounds.size() + live.counters.size()));
    EXPECT_EQ(kinds["i"], static_cast<int>(live.rounds.size() + live.losses.size() + live.notes.size()));
}

TEST_F(Exports, ChromeTraceJoinsTheBytesOfARoundsTokens) {
    ASSERT_TRUE(export_chrome(path(), folder_.file("trace.json"), false).ok());
    const nlohmann::json trace = nlohmann::json::parse(read_text(folder_.file("trace.json")), nullptr, false);
    const Snapshot live = apply_all(records_);
    std::map<RowId, std::string> expected;
    for (std::size_t i = 0; i < live.rounds.size(); ++i) {
        const RoundEntry& round = live.rounds[i];
        const Vocab* vocab = live.vocab(live.run(round.row.run_id)->vocab_id);
        if (vocab == nullptr || round.tokens.count == 0) continue;
        std::string bytes;
        for (std::uint32_t t = 0; t < round.tokens.count; ++t) {
            const auto id = static_cast<std::size_t>(live.tokens[round.tokens.first + t].token_id);
            if (id < vocab->rows.size()) bytes += vocab->rows[id].bytes;
        }
        expected[round.row.id] = format_token(bytes);
    }
    std::size_t compared = 0;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
        if (text_of(event, "ph") != "b" || !event.at("args").contains("text")) continue;
        ++compared;
        EXPECT_EQ(text_of(event.at("args"), "text"), expected[event.at("id").get<RowId>()]);
    }
    EXPECT_GT(compared, 0u);
}

TEST_F(Exports, ChromeTraceCompressesByName) {
    ASSERT_TRUE(export_chrome(path(), folder_.file("trace.json"), false).ok());
    ASSERT_TRUE(export_chrome(path(), folder_.file("trace.json.gz"), false).ok());
    const std::string packed = read_text(folder_.file("trace.json.gz"));
    ASSERT_GE(packed.size(), 2u);
    EXPECT_EQ(packed.substr(0, 2), "\x1f\x8b");
    EXPECT_EQ(read_gzip(folder_.file("trace.json.gz")), read_text(folder_.file("trace.json")));
}

TEST_F(Exports, ChromeTraceWithoutTextHasNone) {
    ASSERT_TRUE(export_chrome(path(), folder_.file("trace.json"), true).ok());
    const std::string text = read_text(folder_.file("trace.json"));
    EXPECT_EQ(text.find("look, here"), std::string::npos);
    EXPECT_EQ(text.find("\"text\""), std::string::npos);
}

TEST(Export, FlowsConnectLaunchesToKernels) {
    const ScratchFolder folder;
    std::vector<Record> records = RandomCapture(3, {1, 1, 3, 1, true}).records();
    std::erase_if(records, [](const Record& r) { return std::holds_alternative<std::vector<GpuOpRow>>(r); });
    records.push_back(std::vector<NvtxRangeRow>{{1, "CUDA API", "cudaGraphLaunch", 5, 100, 120, 77}});
    std::vector<GpuOpRow> ops(3);
    for (std::size_t i = 0; i < ops.size(); ++i) {
        ops[i].id = 100 + static_cast<RowId>(i);
        ops[i].run_id = 1;
        ops[i].phase_id = 4;
        ops[i].name = "k";
        ops[i].start_ns = 130 + 20 * static_cast<TimeNs>(i);
        ops[i].end_ns = ops[i].start_ns + 15;
        ops[i].correlation_id = i < 2 ? 77 : 5;  // the launch of the last one is missing
    }
    records.push_back(ops);
    write_all(folder.file("a.dscope"), records);
    ASSERT_TRUE(export_chrome(folder.file("a.dscope"), folder.file("t.json"), false).ok());
    const nlohmann::json trace = nlohmann::json::parse(read_text(folder.file("t.json")), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::map<std::string, int> kinds;
    expect_good_trace(trace, kinds);
    EXPECT_EQ(kinds["s"], 2);
    EXPECT_EQ(kinds["f"], 2);
    double tau = 0;
    for (const nlohmann::json& event : trace.at("traceEvents"))
        if (text_of(event, "ph") == "C" && text_of(event, "name") == "tau")
            tau = event.at("args").at("value");
    const Snapshot live = apply_all(records);
    double committed = 0;
    for (std::size_t i = 0; i < live.rounds.size(); ++i) committed += live.rounds[i].row.committed;
    EXPECT_DOUBLE_EQ(tau, committed / static_cast<double>(live.rounds.size()));
}

TEST(Export, InvalidUtf8IsReplaced) {
    const ScratchFolder folder;
    std::vector<Record> records = RandomCapture(3, {1, 1, 3, 1, true}).records();
    records.push_back(NoteRow{1, 0, 5, "bad \xff\xfe bytes \\ \" \x01"});
    // Two kernels that overlap on one stream need two tracks.
    GpuOpRow a;
    a.id = 100;
    a.run_id = 1;
    a.phase_id = 4;
    a.name = "a";
    a.start_ns = 100;
    a.end_ns = 200;
    GpuOpRow b = a;
    b.id = 101;
    b.start_ns = 150;
    b.end_ns = 250;
    records.push_back(std::vector<GpuOpRow>{a, b});
    write_all(folder.file("a.dscope"), records);
    ASSERT_TRUE(export_chrome(folder.file("a.dscope"), folder.file("t.json"), false).ok());
    const nlohmann::json trace = nlohmann::json::parse(read_text(folder.file("t.json")), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::map<std::string, int> kinds;
    expect_good_trace(trace, kinds);
}

}  // namespace
}  // namespace draftscope
