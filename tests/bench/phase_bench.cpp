// Measures the cost of a phase scope: the ring alone, with NVTX and no listener, with our injection, and with
// the phase stack of GPU tracing. With --overhead N it instead measures the cost of recording for a decode of
// the demo model, in N blocks of four decodes in ABBA order.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "app/jobs/run/recorder.h"
#include "app/jobs/run/run_job.h"
#include "base/clock.h"
#include "capture/queries.h"
#include "profiler/cupti/gpu_context.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope {
namespace {

/// Drains the ring periodically, so that a push never finds it full.
class Drained {
  public:
    explicit Drained(PhaseRecorder& recorder) : recorder_(recorder) { events_.reserve(1u << 14); }
    void after_push() {
        if (++pushed_ % (1u << 13) != 0) return;
        events_.clear();
        recorder_.drain(events_);
    }

  private:
    PhaseRecorder& recorder_;
    std::vector<SpanEvent> events_;
    std::uint64_t pushed_ = 0;
};

void ring_push(benchmark::State& state) {
    PhaseRecorder recorder;
    Drained drained(recorder);
    SpanEvent event;
    event.phase = Phase::head;
    for (auto _ : state) {
        recorder.record(event);
        drained.after_push();
    }
}
BENCHMARK(ring_push);

void two_clock_reads(benchmark::State& state) {
    for (auto _ : state) {
        benchmark::DoNotOptimize(ticks_now());
        benchmark::DoNotOptimize(ticks_now());
    }
}
BENCHMARK(two_clock_reads);

void scopes(benchmark::State& state, RangeSink* listener) {
    PhaseRecorder recorder;
    recorder.set_range_sink(listener);
    Drained drained(recorder);
    for (auto _ : state) {
        { PhaseScope scope(recorder, Phase::head, 2, 4, 1000); }
        drained.after_push();
    }
}

void scope_ring_only(benchmark::State& state) {
    scopes(state, nullptr);
}
BENCHMARK(scope_ring_only);

void scope_gpu_phase_stack(benchmark::State& state) {
    GpuPhaseStack stack;
    scopes(state, &stack);
}
BENCHMARK(scope_gpu_phase_stack);

/// Ranges of our injection are not stored.
void scope_nvtx_injection_idle(benchmark::State& state) {
    NvtxMirror mirror;
    state.SetLabel(nvtx_listener_name());
    scopes(state, &mirror);
}
BENCHMARK(scope_nvtx_injection_idle);

void scope_nvtx_injection_storing(benchmark::State& state) {
    NvtxMirror mirror;
    state.SetLabel(nvtx_listener_name());
    nvtx_capture_start();
    PhaseRecorder recorder;
    recorder.set_range_sink(&mirror);
    Drained drained(recorder);
    std::size_t stored = 0;
    for (auto _ : state) {
        { PhaseScope scope(recorder, Phase::head, 2, 4, 1000); }
        drained.after_push();
        if (++stored % (1u << 16) == 0) benchmark::DoNotOptimize(nvtx_capture_take());
    }
    nvtx_capture_stop();
    nvtx_capture_take();
}
BENCHMARK(scope_nvtx_injection_storing);

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Prints the median seconds of a demo decode with and without the phase recorder, in blocks of on, off, off,
/// on.
int measure_overhead(int blocks) {
    EngineHost host;
    RunConfig config;
    config.prompt = "Explain in three short sentences why the sky is blue.";
    config.max_new = 96;
    config.ignore_eos = true;
    config.calibration_rounds = 0;
    config.head = "fr-spec";
    std::vector<double> on, off;
    const auto decode = [&](bool phases) {
        Recorder recorder({}, unwatched_interval);
        DebugGate gate;
        RunHooks hooks;
        hooks.phases = phases;
        const auto report = host.run(config, recorder, gate, hooks);
        if (!report.ok()) {
            std::fprintf(stderr, "%s\n", report.error().message.c_str());
            std::exit(1);
        }
        recorder.flush();
        const RunTotals totals = run_totals(*recorder.snapshot(), report->run_id);
        (phases ? on : off).push_back(static_cast<double>(totals.decode_ns) / 1e9);
    };
    decode(true);  // loads everything
    on.clear();
    for (int block = 0; block < blocks; ++block)
        for (const bool phases : {true, false, false, true}) decode(phases);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < on.size(); ++i) ratios.push_back(on[i] / off[i]);
    std::printf("decode with phases %.4f s, without %.4f s (medians of %zu); ratio of pairs, median %.4f\n",
                median(on), median(off), on.size(), median(ratios));
    return 0;
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--overhead") == 0)
        return draftscope::measure_overhead(std::max(1, std::atoi(argv[2])));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
