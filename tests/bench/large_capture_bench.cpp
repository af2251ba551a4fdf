// Opens and draws a large capture as the window does. Prints:
// - open: time until the first data and until all data are loaded; memory of the process then
// - lanes: worst time that taking the timeline's lanes from a snapshot costs the window, every half second
//   while the file loads
// - frame: worst time of the timeline's blocks at all zooms from the whole run to one span, and the highest
//   number of intervals read individually
//
// Usage: large_capture_bench [spans = 10000000] [folder] [keep]. With "keep" the file is not deleted.
// Usage: large_capture_bench FILE opens and draws that capture.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/models/timeline.h"
#include "base/clock.h"
#include "storage/capture_file.h"
#include "tests/bench/synthetic_steps.h"

namespace draftscope {
namespace {

constexpr int columns = 1600;

/// Measures wall time, and processor time of all threads, because the machine may be shared.
class Stopwatch {
  public:
    double wall_s() const { return seconds(monotonic_ns() - wall_); }
    double cpu_s() const { return seconds(cpu_now() - cpu_); }

  private:
    static TimeNs cpu_now() {
        timespec now{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return now.tv_sec * ns_per_s + now.tv_nsec;
    }
    TimeNs wall_ = monotonic_ns(), cpu_ = cpu_now();
};

void stop_on(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "large_capture_bench: {}\n", status.error().message);
    std::exit(1);
}

void write_file(const std::string& path, std::int64_t spans) {
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) stop_on(writer.error());
    RunRow run;
    run.id = 1;
    run.started_monotonic = 1;
    (*writer)->push(RunStarted{run, nullptr, {}});
    PromptRow prompt;
    prompt.id = 1;
    prompt.run_id = 1;
    (*writer)->push(PromptStarted{prompt});
    const std::int64_t steps = spans / made_spans_per_step;
    Rng rng(1);
    const Stopwatch watch;
    for (RowId id = 1; id <= steps; ++id) (*writer)->push(make_synthetic_step(id, true, rng));
    (*writer)->push(RunEnded{1, RunEnd::ok, steps * made_step_ns, {}});
    stop_on((*writer)->flush());
    const double written_s = watch.wall_s(), written_cpu_s = watch.cpu_s();
    stop_on((*writer)->close());
    fmt::print("write  {} rows, {:.2f} M rows/s of wall time, {:.2f} M of CPU time; with indexes {:.1f} s\n",
               (*writer)->stats().rows, static_cast<double>((*writer)->stats().rows) / written_s * 1e-6,
               static_cast<double>((*writer)->stats().rows) / written_cpu_s * 1e-6, watch.wall_s());
}

struct Window : RecordSink {
    void push(Record record) override { capture.apply(record); }
    /// Does what the window does with a new snapshot, on the window's thread.
    void show() {
        const Snapshot snapshot = capture.snapshot(1);
        const Stopwatch watch;
        index = run_lanes(snapshot, 1);
        worst_update_s = std::max(worst_update_s, watch.cpu_s());
        ++updates;
    }
    Capture capture;
    std::shared_ptr<const RunLanes> index;
    double worst_update_s = 0;
    int updates = 0;
};

void bench_open(const std::string& path, Window& window) {
    const Stopwatch watch;
    const TimeNs start = monotonic_ns();
    auto file = CaptureFollower::open(path, default_preload_limit);
    if (!file.ok()) stop_on(file.error());
    window.capture.set_stored((*file)->stored());
    TimeNs first = 0, due = start + 100 * ns_per_ms;
    stop_on((*file)->poll(window, [&] {
        const TimeNs now = monotonic_ns();
        if (now < due) return true;
        window.show();
        if (first == 0) first = monotonic_ns() - start;
        due = monotonic_ns() + 500 * ns_per_ms;
        return true;
    }));
    window.show();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "open   {:.0f} MB: first data {:.3f} s, all data {:.2f} s ({:.2f} s of CPU); {:.0f} MB of memory at "
        "most\n",
        static_cast<double>(std::filesystem::file_size(path)) * 1e-6, seconds(first), watch.wall_s(),
        watch.cpu_s(), static_cast<double>(usage.ru_maxrss) * 1.024e-3);
    fmt::print("lanes  {} updates, the worst {:.1f} ms of CPU\n", window.updates,
               window.worst_update_s * 1e3);
}

void bench_frames(const std::shared_ptr<const RunLanes>& index) {
    std::vector<TimelineBlock> blocks;
    double worst_s = 0;
    std::size_t max_touched = 0, max_blocks = 0, rows = 0;
    for (double span = static_cast<double>(index->end - index->begin); span > 1000; span /= 1.5)
        for (const double at : {0.0, 0.37, 0.93}) {
            const auto begin =
                index->begin + static_cast<TimeNs>(at * static_cast<double>(index->end - index->begin));
            const TimelineView view{begin, begin + static_cast<TimeNs>(span), columns};
            const Stopwatch watch;
            std::size_t touched = 0, drawn = 0;
            rows = 0;
            for (const TimelineLane& lane : index->lanes)
                for (const TimelineRow& row : lane.rows) {
                    blocks.clear();
                    touched += visible_blocks(row, view, blocks);
                    drawn += blocks.size();
                    ++rows;
                }
            worst_s = std::max(worst_s, watch.cpu_s());
            max_touched = std::max(max_touched, touched);
            max_blocks = std::max(max_blocks, drawn);
        }
    fmt::print(
        "frame  {} rows of lanes, {} pixels: the worst {:.2f} ms of CPU, {} intervals read, {} blocks\n",
        rows, columns, worst_s * 1e3, max_touched, max_blocks);
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    if (argc > 1 && std::filesystem::is_regular_file(argv[1])) {
        Window window;
        bench_open(argv[1], window);
        bench_frames(window.index);
        return 0;
    }
    const std::int64_t spans = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
    std::string folder =
        (argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path()) /
        "large_capture_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        fmt::print(stderr, "large_capture_bench: can't create the folder {}\n", folder);
        return 2;
    }
    write_file(folder + "/large.dscope", spans);
    Window window;
    bench_open(folder + "/large.dscope", window);
    bench_frames(window.index);
    if (argc > 3 && std::string_view(argv[3]) == "keep")
        fmt::print("kept   {}/large.dscope\n", folder);
    else
        std::filesystem::remove_all(folder);
    return 0;
}
