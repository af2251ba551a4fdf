// Measures the overhead of recording.
// - scope: nanoseconds of a phase scope (two clock reads and a push into the ring), alone and nested in
//   another one
// - mirror: the same with the NVTX mirror, without a listener and with our injection. The former runs in a
//   separate process, since NVTX looks for listeners only once.
// - push: nanoseconds of the push alone; the goal is 12 ns
// - T0: time per step of the demo model with phases, records, recorder thread and capture file, compared
//   with none of them. Both decode the same prompts in ABBA order. Prints wall time of the decoding thread
//   (the goal is 1 %), its processor time, and that of all threads. The time of the recorder's and the
//   writer's threads is measured directly, so it is exact on a busy machine, too.
//
// All results are medians. Usage: overhead_bench [seconds = 60] [tokens = 16]. With 0 seconds, T0 is skipped,
// which needs the demo model.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "app/jobs/run/recorder.h"
#include "base/clock.h"
#include "base/phase.h"
#include "profiler/nvtx/nvtx_mirror.h"
#include "stats/bootstrap.h"
#include "storage/capture_file.h"
#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"

namespace draftscope {
namespace {

constexpr int scopes = 8192;  // half of the ring's capacity
constexpr int repetitions = 61;
constexpr double goal = 1.01;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Returns the median nanoseconds of one of `scopes` calls.
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

void one_scope_each(PhaseRecorder& recorder) {
    for (int i = 0; i < scopes; ++i) PhaseScope scope(recorder, Phase::head, 1, 8, 4096);
}

void bench_mirror() {
    PhaseRecorder recorder;
    NvtxMirror mirror;
    recorder.set_range_sink(&mirror);
    const double ns = ns_each(recorder, [&] { one_scope_each(recorder); });
    fmt::print("mirror   {:.1f} ns a scope with the NVTX mirror; listener: {}\n", ns, nvtx_listener_name());
}

constexpr const char* mirror_alone = "mirror";

void bench_mirror_without_listener() {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("NVTX_INJECTION64_PATH", "", 1);  // prevents the loader from looking for our injection
        execl("/proc/self/exe", "overhead_bench", mirror_alone, nullptr);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fmt::print(stderr, "overhead_bench: the NVTX mirror without a listener was not measured\n");
}

void bench_scopes() {
    PhaseRecorder recorder;
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
    const double scope = ns_each(recorder, [&] { one_scope_each(recorder); });
    const double nested = ns_each(recorder, [&] {
        for (int i = 0; i < scopes / 2; ++i) {
            const PhaseScope outer(recorder, Phase::topk);
            const PhaseScope inner(recorder, Phase::softmax);
        }
    });
    fmt::print("push     {:.1f} ns (goal 12)\n", push);
    fmt::print("scope    {:.1f} ns, nested {:.1f} ns each; two clock reads alone {:.1f} ns ({})\n", scope,
               nested, clocks, TickScale::calibrate().uses_tsc() ? "invariant TSC" : "CLOCK_MONOTONIC");
    bench_mirror_without_listener();
    bench_mirror();
}

TimeNs cpu_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * ns_per_s + now.tv_nsec;
}

/// One capture for all recorded decodes, like a run of many prompts: recorder thread, storage thread, file.
struct Recorded {
    Recorder recorder{{}, unwatched_interval};
    std::unique_ptr<CaptureWriter> writer;
    RowIds ids;
    CaptureOutput capture_output;

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
        capture_output = {&recorder, &ids, 1, run.started_monotonic, "full", nullptr};
    }
    ~Recorded() {
        recorder.set_storage(nullptr);
        static_cast<void>(writer->close());
    }
};

/// Times per step: wall time and processor time of the decoding thread, and processor time of all other
/// threads.
struct PerStep {
    double wall_ns = 0, decode_thread_ns = 0, others_ns = 0;
    PerStep& operator+=(const PerStep& other) {
        wall_ns += other.wall_ns;
        decode_thread_ns += other.decode_thread_ns;
        others_ns += other.others_ns;
        return *this;
    }
};

PerStep decode(testing::DecodeFixture& fixture, const std::vector<TokenId>& prompt, int tokens,
               Recorded* recorded) {
    Drafter& drafter = fixture.drafter("eagle2");
    PhaseRecorder phases;
    phases.set_enabled(recorded != nullptr);
    DecodeOptions options;
    options.max_new = tokens;
    options.ignore_eos = true;
    DecodeSession session({fixture.target(), drafter, &fixture.head("full", drafter), nullptr,
                           fixture.exec(1), phases, fixture.gate(), options,
                           recorded != nullptr ? recorded->capture_output : CaptureOutput{}});
    const std::vector<std::vector<TokenId>> prompts = {prompt};  // the list keeps a reference
    // Measured from the first token, which the prefill emits, and outside the session, so that work between
    // steps counts.
    TimeNs all = 0, own = 0, start = 0;
    testing::PromptList list(prompts, [&](std::string_view) {
        if (start != 0) return;
        start = monotonic_ns();
        all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        own = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    });
    const Status done = session.run(list);
    const TimeNs wall = monotonic_ns() - start;
    own = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - own;
    if (recorded != nullptr) {  // work that other threads finish later for these steps counts, too
        recorded->recorder.flush();
        static_cast<void>(recorded->writer->flush());
    }
    const TimeNs used = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all;
    if (!done.ok()) std::exit(1);
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, session.totals().steps));
    return {static_cast<double>(wall) / steps, static_cast<double>(own) / steps,
            static_cast<double>(used - own) / steps};
}

/// Each block holds the sum of two decodes.
void report(const char* what, const std::vector<PerStep>& off, const std::vector<PerStep>& on,
            double (*part)(const PerStep&)) {
    std::vector<double> off_ns, on_ns, ratios;
    for (std::size_t i = 0; i < off.size(); ++i) {
        off_ns.push_back(0.5 * part(off[i]));
        on_ns.push_back(0.5 * part(on[i]));
        ratios.push_back(on_ns[i] / off_ns[i]);
    }
    std::vector<std::uint32_t> unit(ratios.size());
    std::iota(unit.begin(), unit.end(), 0u);
    fmt::print("T0 {}  off {:.1f} us a step, on {:.1f} us, ratio {:.4f}", what, median(off_ns) * 1e-3,
               median(on_ns) * 1e-3, median(ratios));
    if (const auto interval = median_interval(ratios, unit, unit.size()))
        fmt::print(" (95 % {:.4f} .. {:.4f}, {} ABBA blocks): the goal of {} is {}", interval->low,
                   interval->high, ratios.size(), goal,
                   interval->high <= goal ? "held"
                   : interval->low > goal ? "missed"
                                          : "not decided");
    fmt::print("\n");
}

/// Runs blocks of about a quarter of a second. Each decodes one prompt off, on, on, off, so slow drift
/// affects both sides equally. The median over blocks ignores disturbed blocks.
void bench_t0(double seconds_to_spend, int tokens) {
    const auto fixture = testing::make_demo_fixture(kernels::Precision::int8);
    const auto prompts = testing::demo_prompts(fixture->target(), 12);
    std::string folder = std::filesystem::temp_directory_path() / "overhead_bench_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::exit(2);
    std::vector<PerStep> off, on;
    {
        Recorded recorded(folder + "/a.dscope");
        for (const auto& prompt : prompts) decode(*fixture, prompt, tokens, &recorded);  // warm-up
        const TimeNs until = monotonic_ns() + static_cast<TimeNs>(seconds_to_spend * 1e9);
        for (std::size_t block = 0; block < 8 || monotonic_ns() < until; ++block) {
            PerStep sum[2];
            for (const bool recording : {false, true, true, false})
                sum[recording ? 1 : 0] += decode(*fixture, prompts[block % prompts.size()], tokens,
                                                 recording ? &recorded : nullptr);
            off.push_back(sum[0]);
            on.push_back(sum[1]);
        }
    }
    std::filesystem::remove_all(folder);
    report("wall           ", off, on, [](const PerStep& step) { return step.wall_ns; });
    report("CPU, own thread", off, on, [](const PerStep& step) { return step.decode_thread_ns; });
    report("CPU, all       ", off, on,
           [](const PerStep& step) { return step.decode_thread_ns + step.others_ns; });
    std::vector<double> others, shares;
    for (std::size_t i = 0; i < off.size(); ++i) {
        others.push_back(0.5 * on[i].others_ns);
        shares.push_back(on[i].others_ns / off[i].decode_thread_ns);
    }
    fmt::print("T0 recorder and writer  {:.1f} us of CPU a step, {:.2f} % of it\n", median(others) * 1e-3,
               median(shares) * 100);
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == draftscope::mirror_alone) {
        draftscope::bench_mirror();
        return 0;
    }
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
