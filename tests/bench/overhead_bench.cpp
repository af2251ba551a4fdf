// What recording costs.
//   scope   nanoseconds of one phase scope (two clock reads and the push into its ring): plain, nested in
//   another, and
//           with the NVTX mirror, which is a plain call without a listener
//   push    the push alone; the goal is 12 ns
//   T0      time per step of the demo model with phases, records, recorder thread and capture file, against
//   none of
//           it: the same prompts in ABBA order; wall time of the decoding thread (the goal is 1 %), and
//           processor time of all threads
// Medians. Usage: overhead_bench [seconds = 60] [tokens = 16]; 0 seconds leave out T0, which needs the demo
// model.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

#include "app/jobs/recorder.h"
#include "base/clock.h"
#include "profiler/bootstrap.h"
#include "profiler/nvtx_mirror.h"
#include "profiler/phase.h"
#include "storage/capture_file.h"
#include "tests/support/demo_model.h"
#include "tests/unit/engine/demo_rig.h"

namespace draftscope {
namespace {

constexpr int scopes = 8192;  // half a ring
constexpr int repetitions = 61;
constexpr double goal = 1.01;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Median nanoseconds of one of `scopes` calls.
double ns_each(PhaseRecorder& recorder, const std::function<void()>& all) {
    std::vector<double> ns;
    std::vector<SpanEvent> drained;
    for (int r = 0; r < repetitions; ++r) {
        const TimeNs start = monotonic_ns();
        all();
        ns.push_back(static_cast<double>(monotonic_ns() - start) / scopes);
        drained.clear();
        recorder.drain(drained);
    }
    return median(ns);
}

void bench_scopes() {
    PhaseRecorder recorder;
    NvtxMirror mirror;
    volatile std::uint64_t sink = 0;
    const double clocks = ns_each(recorder, [&] {
        for (int i = 0; i < scopes; ++i) sink = ticks_now() + ticks_now();
    });
    const double push = ns_each(recorder, [&] {
        SpanEvent event;
        event.phase = Phase::head;
        for (int i = 0; i < scopes; ++i) {
            event.start_ticks = static_cast<std::uint64_t>(i);
            recorder.record(event);
        }
    });
    const auto plain = [&] {
        for (int i = 0; i < scopes; ++i) PhaseScope scope(recorder, Phase::head, 1, 8, 4096);
    };
    const double scope = ns_each(recorder, plain);
    const double nested = ns_each(recorder, [&] {
        for (int i = 0; i < scopes / 2; ++i) {
            const PhaseScope outer(recorder, Phase::topk);
            const PhaseScope inner(recorder, Phase::softmax);
        }
    });
    recorder.set_listener(&mirror);
    const double mirrored = ns_each(recorder, plain);
    fmt::print("push     {:.1f} ns (goal 12)\n", push);
    fmt::print("scope    {:.1f} ns, nested {:.1f} ns each; two clock reads alone {:.1f} ns ({})\n", scope,
               nested, clocks, TickScale::calibrate().uses_tsc() ? "invariant TSC" : "CLOCK_MONOTONIC");
    fmt::print("mirror   {:.1f} ns a scope with the NVTX mirror; listener: {}\n", mirrored,
               nvtx_listener_name());
}

TimeNs cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * ns_per_s + now.tv_nsec;
}

/// One capture for all recorded decodes, as one run records many prompts: recorder thread, storage thread,
/// file.
struct Recorded {
    Recorder recorder{{}, unwatched_interval};
    std::unique_ptr<CaptureWriter> writer;
    RowIds ids;
    Recording recording;

    explicit Recorded(const std::string& file) {
        auto created = CaptureWriter::create(file, true);
        if (!created.ok()) {
            fmt::print(stderr, "overhead_bench: {}\n", created.error().message);
            std::exit(1);
        }
        writer = std::move(*created);
        writer->set_unbounded_push();
        recorder.set_storage(writer.get());
        RunRow run;
        run.id = ids.run = 1;
        run.started_monotonic = monotonic_ns();
        recorder.push(RunStarted{run, nullptr, {1, run.started_monotonic, utc_ns(), std::nullopt}});
        recording = {&recorder, &ids, 1, run.started_monotonic, "full", nullptr};
    }
    ~Recorded() {
        recorder.set_storage(nullptr);
        static_cast<void>(writer->close());
    }
};

/// Of a step: elapsed time on the decoding thread, and processor time of all threads of the process.
struct PerStep {
    double wall_ns = 0, cpu_ns = 0;
};

PerStep decode(testing::DecodeRig& rig, const std::vector<TokenId>& prompt, int tokens, Recorded* recorded) {
    Drafter& drafter = rig.drafter("eagle2");
    PhaseRecorder phases;
    phases.set_enabled(recorded != nullptr);
    DecodeOptions options;
    options.max_new = tokens;
    options.ignore_eos = true;
    DecodeSession session(rig.target(), drafter, &rig.head("full", drafter), nullptr, rig.exec(1), options,
                          recorded != nullptr ? recorded->recording : Recording{}, phases, rig.gate());
    const std::vector<std::vector<TokenId>> prompts = {prompt};  // the list keeps a reference
    // From the first token on, which the prefill gives; from outside, so that work between two steps counts
    // too.
    TimeNs cpu = 0, start = 0;
    testing::PromptList list(prompts, [&](const std::string&) {
        if (start != 0) return;
        start = monotonic_ns();
        cpu = cpu_ns();
    });
    const Status done = session.run(list);
    const TimeNs wall = monotonic_ns() - start;
    if (recorded != nullptr) {  // what other threads still do for these steps belongs to them
        recorded->recorder.flush();
        static_cast<void>(recorded->writer->flush());
    }
    const TimeNs used = cpu_ns() - cpu;
    if (!done.ok()) std::exit(1);
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, session.totals().steps));
    return {static_cast<double>(wall) / steps, static_cast<double>(used) / steps};
}

void report(const char* what, const std::vector<double>& off, const std::vector<double>& on) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < off.size(); ++i) ratios.push_back(on[i] / off[i]);
    std::vector<std::uint32_t> unit(ratios.size());
    std::iota(unit.begin(), unit.end(), 0u);
    fmt::print("T0 {}  off {:.1f} us a step, on {:.1f} us, ratio {:.4f}", what, median(off) * 1e-3,
               median(on) * 1e-3, median(ratios));
    if (const auto interval = median_interval(ratios, unit, unit.size()))
        fmt::print(" (95 % {:.4f} .. {:.4f}, {} ABBA blocks): the goal of {} is {}", interval->low,
                   interval->high, ratios.size(), goal,
                   interval->high <= goal ? "held"
                   : interval->low > goal ? "missed"
                                          : "not decided");
    fmt::print("\n");
}

/// Blocks of a quarter of a second or so, each with a prompt of its own decoded off, on, on, off: what drifts
/// slower than that is in both. The median over blocks does not see a block that something else disturbed.
void bench_t0(double seconds_to_spend, int tokens) {
    const auto rig = testing::make_demo_rig(kernels::Precision::int8);
    const auto prompts = testing::demo_prompts(rig->target(), 12);
    std::string folder = std::filesystem::temp_directory_path() / "overhead_bench_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::exit(2);
    std::vector<double> off_wall, on_wall, off_cpu, on_cpu;
    {
        Recorded recorded(folder + "/a.dscope");
        for (const auto& prompt : prompts) decode(*rig, prompt, tokens, &recorded);  // warm-up
        const TimeNs until = monotonic_ns() + static_cast<TimeNs>(seconds_to_spend * 1e9);
        for (std::size_t block = 0; block < 8 || monotonic_ns() < until; ++block) {
            PerStep sum[2];
            for (const bool on : {false, true, true, false}) {
                const PerStep one =
                    decode(*rig, prompts[block % prompts.size()], tokens, on ? &recorded : nullptr);
                sum[on ? 1 : 0].wall_ns += 0.5 * one.wall_ns;
                sum[on ? 1 : 0].cpu_ns += 0.5 * one.cpu_ns;
            }
            off_wall.push_back(sum[0].wall_ns);
            on_wall.push_back(sum[1].wall_ns);
            off_cpu.push_back(sum[0].cpu_ns);
            on_cpu.push_back(sum[1].cpu_ns);
        }
    }
    std::filesystem::remove_all(folder);
    report("wall", off_wall, on_wall);
    report("CPU ", off_cpu, on_cpu);
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
    const int tokens = argc > 2 ? std::atoi(argv[2]) : 16;
    draftscope::bench_scopes();
    if (seconds <= 0) return 0;
    if (!draftscope::testing::demo_model_present()) {
        fmt::print(stderr, "{}\n", draftscope::testing::demo_model_hint());
        return 2;
    }
    draftscope::bench_t0(seconds, tokens);
    return 0;
}
