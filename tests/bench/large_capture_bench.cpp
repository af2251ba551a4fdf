// A capture too large to look at row by row, opened and drawn as the window does it:
//   open    time until the first data are there, and all of them; memory of the process then
//   lanes   the timeline's index, brought up to date every half second while the file comes in: the worst
//   time
//           that one of these took from the window
//   frame   the worst time, and the most intervals looked at one by one, of the timeline's blocks over all
//   zooms
//           from the whole run to one span
// Usage: large_capture_bench [spans = 10000000] [folder]
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/models/timeline.h"
#include "base/clock.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

constexpr int spans_per_step = 40;
constexpr int nodes_per_round = 12;
constexpr int columns = 1600;

void stop_on(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "large_capture_bench: {}\n", status.error().message);
    std::exit(1);
}

StepRecord make_step(RowId id) {
    StepRecord record;
    const TimeNs start = id * spans_per_step * 1000;
    record.step = {id, 1, static_cast<int>(id), start, start + spans_per_step * 1000, 0, Excluded::no};
    for (int i = 0; i < spans_per_step; ++i) {
        SpanRow span;
        span.id = (id - 1) * spans_per_step + i + 1;
        span.run_id = 1;
        span.step_id = span.round_id = id;
        span.phase_id = 2 + i % 9;
        span.level = i % 4;
        span.start_ns = start + i * 1000;
        span.end_ns = span.start_ns + 400 + (span.id * 7919) % 600;
        record.spans.push_back(span);
    }
    RoundRecord round;
    round.round.id = id;
    round.round.run_id = 1;
    round.round.step_id = id;
    round.round.prompt_id = 1;
    round.round.tree_nodes = nodes_per_round;
    round.round.committed = 1;
    for (int n = 0; n < nodes_per_round; ++n) {
        NodeRow node;
        node.round_id = id;
        node.node = n;
        node.parent = n - 1;
        node.depth = n;
        node.token_id = n;
        round.nodes.push_back(node);
    }
    record.rounds.push_back(std::move(round));
    return record;
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
    const std::int64_t steps = spans / spans_per_step;
    for (RowId id = 1; id <= steps; ++id) (*writer)->push(make_step(id));
    (*writer)->push(RunEnded{1, RunEnd::ok, steps * spans_per_step * 1000, {}});
    stop_on((*writer)->close());
}

struct Window : RecordSink {
    void push(Record record) override { capture.apply(record); }
    /// What the window does with a new snapshot, on its own thread.
    void show() {
        const Snapshot snapshot = capture.snapshot(1);
        const TimeNs start = monotonic_ns();
        index.update(snapshot, 1);
        worst_update = std::max(worst_update, monotonic_ns() - start);
        ++updates;
    }
    Capture capture;
    TimelineIndex index;
    TimeNs worst_update = 0;
    int updates = 0;
};

void bench_open(const std::string& path, Window& window) {
    const TimeNs start = monotonic_ns();
    auto file = CaptureFollower::open(path, trees_ahead_bytes);
    if (!file.ok()) stop_on(file.error());
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
    fmt::print("open   {:.0f} MB: first data {:.3f} s, whole {:.2f} s; {:.0f} MB of memory at most\n",
               static_cast<double>(std::filesystem::file_size(path)) * 1e-6, seconds(first),
               seconds(monotonic_ns() - start), static_cast<double>(usage.ru_maxrss) * 1.024e-3);
    fmt::print("lanes  {} updates, the worst {:.1f} ms\n", window.updates, milliseconds(window.worst_update));
}

void bench_frames(const TimelineIndex& index) {
    std::vector<TimelineBlock> blocks;
    TimeNs worst = 0;
    std::size_t most_touched = 0, most_blocks = 0, rows = 0;
    for (double span = static_cast<double>(index.end() - index.begin()); span > 1000; span /= 1.5)
        for (const double at : {0.0, 0.37, 0.93}) {
            const auto begin =
                index.begin() + static_cast<TimeNs>(at * static_cast<double>(index.end() - index.begin()));
            const TimelineView view{begin, begin + static_cast<TimeNs>(span), columns};
            const TimeNs start = monotonic_ns();
            std::size_t touched = 0, drawn = 0;
            rows = 0;
            for (const TimelineLane& lane : index.lanes())
                for (const TimelineRow& row : lane.rows) {
                    blocks.clear();
                    touched += visible_blocks(row, view, blocks);
                    drawn += blocks.size();
                    ++rows;
                }
            worst = std::max(worst, monotonic_ns() - start);
            most_touched = std::max(most_touched, touched);
            most_blocks = std::max(most_blocks, drawn);
        }
    fmt::print("frame  {} rows of lanes, {} pixels: the worst {:.2f} ms, {} intervals looked at, {} blocks\n",
               rows, columns, milliseconds(worst), most_touched, most_blocks);
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    const std::int64_t spans = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
    std::string folder =
        (argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path()) /
        "large_capture_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        fmt::print(stderr, "large_capture_bench: no folder {} can be made\n", folder);
        return 2;
    }
    write_file(folder + "/large.dscope", spans);
    Window window;
    bench_open(folder + "/large.dscope", window);
    bench_frames(window.index);
    std::filesystem::remove_all(folder);
    return 0;
}
