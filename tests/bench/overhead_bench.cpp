// What recording costs.
//   scope   nanoseconds of one phase scope (two clock reads and the push into its ring): plain, nested in
//   another, and
//           with the NVTX mirror, which is a plain call without a listener
//   push    the push alone; the goal is 12 ns
//   T0      time per step of the demo model with phases, records, recorder thread and capture file, against
//   none of
//           it: the same prompts in ABBA order; the goal is 1 %
// Medians. Usage: overhead_bench [blocks] [tokens]; 0 blocks leave out T0, which needs the demo model.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
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

struct Block {
    double ns_per_step = 0;
};

Block decode_block(testing::DecodeRig& rig, const std::vector<std::vector<TokenId>>& prompts, int tokens,
                   bool on, const std::string& file) {
    Drafter& drafter = rig.drafter("eagle2");
    PhaseRecorder phases;
    phases.set_enabled(on);
    DecodeOptions options;
    options.max_new = tokens;
    options.ignore_eos = true;
    RowIds ids;
    ids.run = 1;
    Recorder recorder;
    std::unique_ptr<CaptureWriter> writer;
    Recording recording;
    if (on) {
        auto created = CaptureWriter::create(file, true);
        if (!created.ok()) {
            fmt::print(stderr, "overhead_bench: {}\n", created.error().message);
            std::exit(1);
        }
        writer = std::move(*created);
        writer->set_unbounded_push();
        recorder.set_storage(writer.get());
        RunRow run;
        run.id = 1;
        run.started_monotonic = monotonic_ns();
        recorder.push(RunStarted{run, nullptr, {1, run.started_monotonic, utc_ns(), std::nullopt}});
        recording = {&recorder, &ids, 1, run.started_monotonic, "full", nullptr};
    }
    DecodeSession session(rig.target(), drafter, &rig.head("full", drafter), nullptr, rig.exec(1), options,
                          recording, phases, rig.gate());
    testing::PromptList list(prompts);
    const TimeNs start = monotonic_ns();
    const Status done = session.run(list);
    const TimeNs wall = monotonic_ns() - start;
    if (!done.ok()) std::exit(1);
    TimeNs prefill = 0;
    for (const auto& [place, outcome] : list.outcomes) prefill += outcome.prefill_ns;
    recorder.set_storage(nullptr);
    if (writer) static_cast<void>(writer->close());
    // From outside, so that work between two steps counts too.
    return {static_cast<double>(wall - prefill) /
            static_cast<double>(std::max<std::int64_t>(1, session.totals().steps))};
}

void bench_t0(int blocks, int tokens) {
    const auto rig = testing::make_demo_rig(kernels::Precision::int8);
    const auto prompts = testing::demo_prompts(rig->target(), 3);
    std::string folder = std::filesystem::temp_directory_path() / "overhead_bench_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::exit(2);
    decode_block(*rig, prompts, tokens, true, folder + "/a.dscope");  // warm-up
    std::vector<double> off, on, ratios;
    for (int b = 0; b < blocks; ++b) {
        double sum[2] = {0, 0};
        for (const bool recorded : {false, true, true, false})
            sum[recorded ? 1 : 0] +=
                0.5 * decode_block(*rig, prompts, tokens, recorded, folder + "/a.dscope").ns_per_step;
        off.push_back(sum[0]);
        on.push_back(sum[1]);
        ratios.push_back(sum[1] / sum[0]);
    }
    std::filesystem::remove_all(folder);
    std::vector<std::uint32_t> unit(ratios.size());
    for (std::size_t i = 0; i < unit.size(); ++i) unit[i] = static_cast<std::uint32_t>(i);
    const auto interval = median_interval(ratios, unit, unit.size());
    fmt::print("T0       off {:.1f} us a step, on {:.1f} us, ratio {:.4f}", median(off) * 1e-3,
               median(on) * 1e-3, median(ratios));
    if (interval)
        fmt::print(" (95 % {:.4f} .. {:.4f}, {} ABBA blocks)", interval->low, interval->high, blocks);
    fmt::print(" (goal 1.01)\n");
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    const int blocks = argc > 1 ? std::atoi(argv[1]) : 8;
    const int tokens = argc > 2 ? std::atoi(argv[2]) : 48;
    draftscope::bench_scopes();
    if (blocks <= 0) return 0;
    if (!draftscope::testing::demo_model_present()) {
        fmt::print(stderr, "{}\n", draftscope::testing::demo_model_hint());
        return 2;
    }
    draftscope::bench_t0(blocks, tokens);
    return 0;
}
