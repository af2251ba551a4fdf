// Speed of the capture file, as ratios within one run:
//   sink       rows/s from push to committed, through queue and thread, against bare prepared SQLite inserts
//   of the
//              same rows into the same table by one thread (WAL, synchronous=NORMAL, 1000 rows a transaction)
//   load       time until a snapshot of a file with a million rows is there
//   views      time of v_phase and v_head on that file
// Repetitions of both sides alternate, medians are compared. Usage: storage_bench [rows] [repetitions]
// [folder]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "storage/capture_file.h"
#include "storage/schema.h"
#include "storage/sql.h"

namespace draftscope {
namespace {

constexpr int spans_per_step = 40;
constexpr int nodes_per_round = 12;

SpanRow span_of(RowId id, RowId step_id) {
    SpanRow span;
    span.id = id;
    span.run_id = 1;
    span.step_id = step_id;
    span.round_id = step_id;
    span.phase_id = 2 + static_cast<int>(id % 9);
    span.level = static_cast<int>(id % 4);
    span.start_ns = id * 1000;
    span.end_ns = id * 1000 + 900;
    span.rows = 8;
    span.bytes = 123456 + id;
    return span;
}

RunStarted run_record() {
    RunRow run;
    run.id = 1;
    run.head = "full";
    run.started_monotonic = 1;
    return {run, nullptr, {}};
}

/// Records of about `rows` rows; spans alone, or whole steps with rounds, nodes and tokens.
std::vector<Record> make_records(std::int64_t rows, bool whole_steps) {
    std::vector<Record> out;
    Rng rng(1);
    RowId span_id = 0;
    std::int64_t made = 0;
    for (RowId step_id = 1; made < rows; ++step_id) {
        StepRecord record;
        record.step = {
            step_id,     1, static_cast<int>(step_id), span_id * 1000, (span_id + spans_per_step) * 1000, 0,
            Excluded::no};
        for (int i = 0; i < spans_per_step; ++i) record.spans.push_back(span_of(++span_id, step_id));
        made += spans_per_step + 1;
        if (whole_steps) {
            RoundRecord round;
            round.round.id = step_id;
            round.round.run_id = 1;
            round.round.step_id = step_id;
            round.round.prompt_id = 1;
            round.round.tree_nodes = nodes_per_round;
            round.round.committed = 3;
            for (int n = 0; n < nodes_per_round; ++n) {
                NodeRow node;
                node.round_id = step_id;
                node.node = n;
                node.parent = n - 1;
                node.depth = n;
                node.token_id = static_cast<TokenId>(rng.below(49152));
                node.draft_logprob = static_cast<float>(-rng.uniform());
                round.nodes.push_back(node);
            }
            for (int t = 0; t < 3; ++t) {
                TokenRow token;
                token.prompt_id = 1;
                token.position = static_cast<int>(step_id) * 3 + t;
                token.round_id = step_id;
                token.token_id = static_cast<TokenId>(rng.below(49152));
                round.tokens.push_back(token);
            }
            HeadEvalRow eval;
            eval.run_id = 1;
            eval.round_id = step_id;
            eval.head = "full";
            eval.head_ns = 1000;
            eval.committed = 3;
            round.head_evals.push_back(eval);
            made += 1 + nodes_per_round + 3 + 1;
            record.rounds.push_back(std::move(round));
        }
        out.push_back(std::move(record));
    }
    return out;
}

void stop_on(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "storage_bench: {}\n", status.error().message);
    std::exit(1);
}

double seconds_of(const std::function<void()>& work) {
    const TimeNs start = monotonic_ns();
    work();
    return seconds(monotonic_ns() - start);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Seconds for the same rows with nothing but SQLite.
double bare_inserts(const std::string& path, const std::vector<Record>& records) {
    std::string message;
    const storage::Database db =
        storage::open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message);
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; BEGIN");
    storage::create_schema(db);
    db.exec("COMMIT");
    storage::Statement insert = db.prepare("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    return seconds_of([&] {
        int in_transaction = 0;
        db.exec("BEGIN IMMEDIATE");
        for (const Record& record : records)
            for (const SpanRow& s : std::get<StepRecord>(record).spans) {
                insert.run(s.id, s.run_id, s.step_id, s.round_id, s.phase_id, s.level, s.lane, s.thread_id,
                           s.start_ns, s.end_ns, s.rows, s.bytes);
                if (++in_transaction < 1000) continue;
                db.exec("COMMIT; BEGIN IMMEDIATE");
                in_transaction = 0;
            }
        db.exec("COMMIT");
    });
}

double sink_inserts(const std::string& path, std::vector<Record> records) {
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) stop_on(writer.error());
    (*writer)->push(run_record());
    stop_on((*writer)->flush());
    const double taken = seconds_of([&] {
        for (Record& record : records) (*writer)->push(std::move(record));
        stop_on((*writer)->flush());
    });
    stop_on((*writer)->close());
    return taken;
}

void bench_sink(const std::string& folder, std::int64_t rows, int repetitions) {
    const std::vector<Record> records = make_records(rows, false);
    std::vector<double> bare, sink;
    for (int i = 0; i < repetitions; ++i) {
        bare.push_back(bare_inserts(fmt::format("{}/bare{}.db", folder, i), records));
        sink.push_back(sink_inserts(fmt::format("{}/sink{}.dscope", folder, i), records));
    }
    const auto count = static_cast<double>(rows);
    fmt::print("sink   {:.2f} M rows/s, bare SQLite {:.2f} M rows/s, ratio {:.2f} (goal 0.6, stretch 0.8)\n",
               count / median(sink) * 1e-6, count / median(bare) * 1e-6, median(bare) / median(sink));
}

void bench_load(const std::string& folder, int repetitions) {
    const std::string path = folder + "/load.dscope";
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) stop_on(writer.error());
    (*writer)->push(run_record());
    PromptRow prompt;
    prompt.id = 1;
    prompt.run_id = 1;
    (*writer)->push(PromptStarted{prompt});
    for (Record& record : make_records(1'000'000, true)) (*writer)->push(std::move(record));
    (*writer)->push(RunEnded{1, RunEnd::ok, 1, {}});
    const double close_s = seconds_of([&] { stop_on((*writer)->close()); });
    std::vector<double> load;
    for (int i = 0; i < repetitions; ++i)
        load.push_back(seconds_of([&] {
            const auto loaded = load_capture(path);
            if (!loaded.ok()) stop_on(loaded.error());
        }));
    fmt::print("load   {:.2f} s for {} rows; close with indexes {:.2f} s\n", median(load),
               (*writer)->stats().rows, close_s);
    std::string message;
    const storage::Database db = storage::open_database(path, SQLITE_OPEN_READONLY, &message);
    for (const char* view : {"v_phase", "v_head"})
        fmt::print("views  {} {:.2f} s\n", view, seconds_of([&] {
                       static_cast<void>(db.integer(fmt::format("SELECT count(*) FROM {}", view)));
                   }));
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 400'000;
    const int repetitions = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5;
    std::string folder =
        (argc > 3 ? std::filesystem::path(argv[3]) : std::filesystem::temp_directory_path()) /
        "storage_bench_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        fmt::print(stderr, "storage_bench: no folder {} can be made\n", folder);
        return 2;
    }
    bench_sink(folder, rows, repetitions);
    bench_load(folder, repetitions);
    std::filesystem::remove_all(folder);
    return 0;
}
