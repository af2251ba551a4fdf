// Measures the speed of the capture file, as ratios within one run.
// - sink: rows/s from push to commit, through queue and thread, relative to bare prepared SQLite inserts.
//   These insert the same rows into the same table on one thread (WAL, synchronous=NORMAL, 1000 rows per
//   transaction).
// - open: time until the first data and all data of a file with OPEN_ROWS rows are loaded
// - views: time of v_phase and v_head on that file
//
// Both sides alternate, and medians are compared. Usage: storage_bench [rows = 400000, 0 = no sink]
// [repetitions = 5] [folder] [OPEN_ROWS = 1000000]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "storage/capture_file.h"
#include "storage/schema.h"
#include "storage/table_sql.h"
#include "tests/bench/synthetic_steps.h"

namespace draftscope {
namespace {

RunStarted run_record() {
    RunRow run;
    run.id = 1;
    run.head = "full";
    run.started_monotonic = 1;
    return {run, nullptr, {}};
}

/// Pushes steps with about `rows` rows: only spans, or also rounds, nodes and tokens.
void push_steps(std::int64_t rows, bool whole_steps, const std::function<void(Record)>& push) {
    Rng rng(1);
    std::int64_t made = 0;
    for (RowId id = 1; made < rows; ++id, made += rows_per_step(whole_steps))
        push(make_synthetic_step(id, whole_steps, rng));
}

void stop_on(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "storage_bench: {}\n", status.error().message);
    std::exit(1);
}

double measure_seconds(const std::function<void()>& work) {
    const TimeNs start = monotonic_ns();
    work();
    return seconds(monotonic_ns() - start);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Returns the seconds to insert the same rows with SQLite alone.
double bare_inserts(const std::string& path, const std::vector<Record>& records) {
    std::string message;
    const storage::Database db =
        storage::open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message);
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; BEGIN");
    storage::create_schema(db);
    db.exec("COMMIT");
    storage::Insert<SpanRow> insert(db);
    return measure_seconds([&] {
        int in_transaction = 0;
        db.exec("BEGIN IMMEDIATE");
        for (const Record& record : records)
            for (const SpanRow& span : std::get<StepRecord>(record).spans) {
                insert.run(span);
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
    const double taken = measure_seconds([&] {
        for (Record& record : records) (*writer)->push(std::move(record));
        stop_on((*writer)->flush());
    });
    stop_on((*writer)->close());
    return taken;
}

void bench_sink(const std::string& folder, std::int64_t rows, int repetitions) {
    std::vector<Record> records;
    push_steps(rows, false, [&](Record record) { records.push_back(std::move(record)); });
    std::vector<double> bare, sink;
    for (int i = 0; i < repetitions; ++i) {
        bare.push_back(bare_inserts(fmt::format("{}/bare{}.db", folder, i), records));
        sink.push_back(sink_inserts(fmt::format("{}/sink{}.dscope", folder, i), records));
    }
    const auto count = static_cast<double>(rows);
    fmt::print("sink   {:.2f} M rows/s, bare SQLite {:.2f} M rows/s, ratio {:.2f} (goal 0.6, stretch 0.8)\n",
               count / median(sink) * 1e-6, count / median(bare) * 1e-6, median(bare) / median(sink));
}

TimeNs cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * ns_per_s + now.tv_nsec;
}

struct Opening {
    double first_s = 0, wall_s = 0, cpu_s = 0;
};

/// Opens a capture as the window does. The first data are the first step and all records before it.
Opening open_once(const std::string& path) {
    class Sink : public RecordSink {
      public:
        void push(Record record) override { capture.apply(record); }
        Capture capture;
    } sink;
    Opening out;
    const TimeNs start = monotonic_ns(), cpu = cpu_ns();
    auto file = CaptureFollower::open(path);
    if (!file.ok()) stop_on(file.error());
    stop_on((*file)->poll(sink, [&] {
        if (out.first_s == 0) {
            static_cast<void>(sink.capture.snapshot(1));
            out.first_s = seconds(monotonic_ns() - start);
        }
        return true;
    }));
    static_cast<void>(sink.capture.snapshot(1));
    out.wall_s = seconds(monotonic_ns() - start);
    out.cpu_s = seconds(cpu_ns() - cpu);
    return out;
}

void bench_load(const std::string& folder, std::int64_t rows, int repetitions) {
    const std::string path = folder + "/load.dscope";
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) stop_on(writer.error());
    (*writer)->push(run_record());
    PromptRow prompt;
    prompt.id = 1;
    prompt.run_id = 1;
    (*writer)->push(PromptStarted{prompt});
    push_steps(rows, true, [&](Record record) { (*writer)->push(std::move(record)); });
    (*writer)->push(RunEnded{1, RunEnd::ok, 1, {}});
    const double close_s = measure_seconds([&] { stop_on((*writer)->close()); });
    std::vector<double> first, wall, cpu;
    for (int i = 0; i < repetitions; ++i) {
        const Opening opening = open_once(path);
        first.push_back(opening.first_s);
        wall.push_back(opening.wall_s);
        cpu.push_back(opening.cpu_s);
    }
    fmt::print(
        "open   {} rows, {:.0f} MB: first data {:.4f} s, all data {:.2f} s ({:.2f} s of CPU); close with "
        "indexes {:.2f} s\n",
        (*writer)->stats().rows, static_cast<double>(std::filesystem::file_size(path)) * 1e-6, median(first),
        median(wall), median(cpu), close_s);
    std::string message;
    const storage::Database db = storage::open_database(path, SQLITE_OPEN_READONLY, &message);
    for (const char* view : {"v_phase", "v_head"})
        fmt::print("views  {} {:.2f} s\n", view, measure_seconds([&] {
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
        fmt::print(stderr, "storage_bench: can't create the folder {}\n", folder);
        return 2;
    }
    const std::int64_t open_rows = argc > 4 ? std::atoll(argv[4]) : 1'000'000;
    if (rows > 0) bench_sink(folder, rows, repetitions);
    bench_load(folder, open_rows, repetitions);
    std::filesystem::remove_all(folder);
    return 0;
}
