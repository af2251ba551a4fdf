#include "profiler/cupti/gpu_session.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/clock.h"
#include "fake_cupti.h"
#include "profiler/cupti/gpu_phase_map.h"
#include "tests/support/scratch_folder.h"

// Tests the CUPTI layer above the library's calls. No GPU is needed.
namespace draftscope {
namespace {

GpuActivity kernel(std::uint64_t node, std::uint32_t correlation, const char* name, TimeNs start) {
    GpuActivity out;
    out.mangled = name;
    out.start_ns = start;
    out.end_ns = start + 10;
    out.correlation = correlation;
    out.graph_node = node;
    out.graph_exec = static_cast<std::uint32_t>(node >> 32);
    out.grid[0] = 3;
    out.block[0] = 128;
    out.stream = 7;
    return out;
}

struct Rig {
    FakeCupti* fake;
    GpuSession session;
    PhaseRecorder recorder;
    GpuPhaseStack stack;

    explicit Rig(GpuSessionOptions options = {.flush_every = 0})
        : Rig(std::make_unique<FakeCupti>(), options) {}
    Rig(std::unique_ptr<FakeCupti> made, GpuSessionOptions options)
        : fake(made.get()), session(std::move(made), options) {
        recorder.set_range_sink(&stack);
    }
    std::vector<GpuOp> take() {
        std::vector<GpuOp> ops;
        session.take(ops, calls);
        return ops;
    }
    void launch(std::uint32_t correlation, const char* name = "cudaGraphLaunch") {
        fake->listener->call_entered(correlation, name);
        fake->listener->call_left(correlation);
    }
    std::vector<GpuCall> calls;
};

TEST(CuptiCandidates, IncludePythonPackages) {
    namespace fs = std::filesystem;
    const testing::ScratchFolder folder;
    const std::string library = folder.file("lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
    fs::create_directories(fs::path(library).parent_path());
    fs::create_directories(folder.file("bin"));
    std::ofstream(library) << "x";
    std::ofstream(folder.file("bin/python3")) << "x";
    const std::string before = std::getenv("PATH");
    ::setenv("PATH", folder.file("bin").c_str(), 1);
    const std::vector<std::string> names = cupti_candidates("");
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_EQ(names.front(), "libcupti.so.13");
    EXPECT_EQ(std::count(names.begin(), names.end(), library), 1);
    EXPECT_EQ(cupti_candidates("mine.so"), std::vector<std::string>{"mine.so"});
}

TEST(GpuSession, GraphKernelsHaveTheirCapturePhase) {
    Rig rig;
    ASSERT_EQ(rig.session.open(Tier::t2).state, CuptiState::ready);
    {
        PhaseScope backbone(rig.recorder, Phase::backbone);
        rig.fake->listener->node_created(0x1'0000'0001);
    }
    {
        PhaseScope head(rig.recorder, Phase::head, 2);
        rig.fake->listener->node_created(0x1'0000'0002);
        PhaseScope topk(rig.recorder, Phase::topk, 2);
        rig.fake->listener->node_created(0x1'0000'0003);
    }
    rig.fake->listener->node_created(0x1'0000'0004);  // captured outside any phase
    for (std::uint64_t node = 1; node <= 4; ++node)
        rig.fake->listener->node_cloned(0x9'0000'0000 + node, 0x1'0000'0000 + node);

    rig.session.begin_window();
    {
        // The launch has another phase, which the kernels must not take.
        PhaseScope verify(rig.recorder, Phase::verify);
        rig.launch(42);
    }
    const TimeNs now = monotonic_ns();
    for (std::uint64_t node = 1; node <= 4; ++node)
        rig.fake->write(kernel(0x9'0000'0000 + node, 42, "_Z4headPKfi", now + static_cast<TimeNs>(node)));
    rig.session.end_window();

    const std::vector<GpuOp> ops = rig.take();
    ASSERT_EQ(ops.size(), 4u);
    EXPECT_EQ(ops[0].phase, Phase::backbone);
    EXPECT_EQ(ops[1].phase, Phase::head);
    EXPECT_EQ(ops[2].phase, Phase::topk);
    EXPECT_EQ(ops[3].phase, Phase::none);
    EXPECT_EQ(ops[0].name, "head(float const*, int)");
    EXPECT_EQ(ops[0].stream, 7u);
    EXPECT_EQ(ops[0].grid[0], 3);
    EXPECT_GT(ops[0].launch_ns, 0);
    EXPECT_EQ(rig.session.take_losses().unattributed, 1u);
    ASSERT_EQ(rig.calls.size(), 1u);
    EXPECT_STREQ(rig.calls[0].name, "cudaGraphLaunch");
    EXPECT_EQ(rig.calls[0].correlation, 42u);
    EXPECT_EQ(rig.fake->forced_flushes, 1);
}

TEST(GpuSession, EagerKernelsHaveTheirLaunchPhase) {
    Rig rig;
    rig.session.open(Tier::t2);
    rig.session.begin_window();
    rig.recorder.set_round(12);
    {
        PhaseScope head(rig.recorder, Phase::head, 1);
        // A driver call inside a runtime call is the same call, whichever of the two the kernel refers to.
        rig.fake->listener->call_entered(5, "cudaLaunchKernel");
        rig.fake->listener->call_entered(6, "cuLaunchKernel");
        rig.fake->listener->call_left(6);
        rig.fake->listener->call_left(5);
    }
    const TimeNs now = monotonic_ns();
    rig.fake->write(kernel(0, 6, "k", now + 100));
    rig.fake->write(kernel(0, 5, "k", now + 50));
    rig.fake->write(kernel(0, 999, "k", now + 60));  // its launch is unknown
    rig.session.end_window();
    const std::vector<GpuOp> ops = rig.take();
    ASSERT_EQ(ops.size(), 3u);
    EXPECT_EQ(ops[0].correlation, 5u);  // by start time
    EXPECT_EQ(ops[0].phase, Phase::head);
    EXPECT_EQ(ops[0].round, 12);
    EXPECT_EQ(ops[1].phase, Phase::none);
    EXPECT_EQ(ops[1].launch_ns, 0);
    EXPECT_EQ(ops[2].phase, Phase::head);
    EXPECT_EQ(rig.calls.size(), 1u);
}

TEST(GpuSession, TierOneLeavesMixedGraphsUnattributed) {
    Rig rig;
    ASSERT_EQ(rig.session.open(Tier::t1).state, CuptiState::ready);
    EXPECT_EQ(rig.fake->enabled.front(), CuptiActivity::graphs);
    const auto add = [&](Phase phase, std::uint64_t node) {
        PhaseScope scope(rig.recorder, phase);
        rig.fake->listener->node_created(node);
    };
    add(Phase::head, 0x1'0000'0001);
    add(Phase::head, 0x1'0000'0002);
    add(Phase::verify, 0x1'0000'0003);
    rig.fake->listener->node_cloned(0x5'0000'0001, 0x1'0000'0001);
    rig.fake->listener->node_cloned(0x5'0000'0002, 0x1'0000'0002);
    rig.fake->listener->node_cloned(0x6'0000'0001, 0x1'0000'0001);
    rig.fake->listener->node_cloned(0x6'0000'0002, 0x1'0000'0003);
    rig.session.begin_window();
    rig.launch(1);
    for (const std::uint32_t exec : {5u, 6u}) {
        GpuActivity graph = kernel(0, 1, nullptr, monotonic_ns());
        graph.kind = GpuOpKind::graph;
        graph.graph_exec = exec;
        rig.fake->write(graph);
    }
    rig.session.end_window();
    const std::vector<GpuOp> ops = rig.take();
    ASSERT_EQ(ops.size(), 2u);
    EXPECT_EQ(ops[0].phase, Phase::head);
    EXPECT_EQ(ops[1].phase, Phase::none);
}

TEST(GpuSession, MissingBuffersAreCounted) {
    Rig rig({.buffer_bytes = 4 * FakeCupti::record_bytes, .max_buffers = 2, .flush_every = 0});
    rig.session.open(Tier::t2);
    rig.session.begin_window();
    const TimeNs now = monotonic_ns();
    std::size_t valid = 0;
    for (int i = 0; i < 4; ++i) rig.fake->write(kernel(0, 1, "k", now));
    std::uint8_t* kept = rig.fake->withhold(valid);
    for (int i = 0; i < 4; ++i) rig.fake->write(kernel(0, 1, "k", now));
    std::size_t other_valid = 0;
    std::uint8_t* other = rig.fake->withhold(other_valid);
    for (int i = 0; i < 3; ++i) rig.fake->write(kernel(0, 1, "k", now));  // there is no third buffer
    rig.fake->listener->buffer_completed(kept, valid);
    rig.fake->listener->buffer_completed(other, other_valid);
    rig.fake->write(kernel(0, 1, "k", now));  // buffers are used again
    rig.session.end_window();
    EXPECT_EQ(rig.take().size(), 9u);
    EXPECT_EQ(rig.session.take_losses().dropped, 3u);
    EXPECT_EQ(rig.session.take_losses().dropped, 0u);
}

TEST(GpuSession, AFullQueueAndForgottenLaunchesAreCounted) {
    Rig rig({.max_queued = 5, .max_launches = 2, .flush_every = 0});
    rig.session.open(Tier::t2);
    rig.session.begin_window();
    for (std::uint32_t i = 1; i <= 4; ++i) rig.launch(i);
    const TimeNs now = monotonic_ns();
    for (int i = 0; i < 8; ++i) rig.fake->write(kernel(0, 4, "k", now));
    rig.session.end_window();
    EXPECT_EQ(rig.take().size(), 5u);
    const GpuLosses losses = rig.session.take_losses();
    EXPECT_EQ(losses.queue_full, 3u);
    EXPECT_EQ(losses.launches_forgotten, 2u);
}

TEST(GpuSession, ZeroTimestampsAndBackwardClocksAreCounted) {
    Rig rig;
    rig.session.open(Tier::t2);
    rig.session.begin_window();
    const TimeNs before = monotonic_ns();
    {
        PhaseScope head(rig.recorder, Phase::head);
        rig.launch(1);
    }
    const TimeNs now = monotonic_ns();
    GpuActivity none = kernel(0, 1, "k", 0);
    none.end_ns = 0;
    GpuActivity backwards = kernel(0, 1, "k", now);
    backwards.end_ns = now - 1;
    rig.fake->write(none);
    rig.fake->write(backwards);
    rig.fake->write(kernel(0, 1, "k", before));                          // before its launch
    rig.fake->write(kernel(0, 1, "k", now + 1'800'000'000 * ns_per_s));  // the wall clock
    rig.session.end_window();
    EXPECT_EQ(rig.take().size(), 1u);
    const GpuLosses losses = rig.session.take_losses();
    EXPECT_EQ(losses.zero_timestamps, 2u);
    EXPECT_EQ(losses.wrong_clock, 1u);
    EXPECT_EQ(losses.before_launch, 1u);
    EXPECT_GT(losses.worst_before_launch_ns, 0);
    EXPECT_EQ(losses.unattributed, 0u);
}

TEST(GpuSession, RunsAreWindowsOfOneSession) {
    Rig rig;
    rig.session.open(Tier::t2);
    rig.fake->write(kernel(0, 1, "before", monotonic_ns()));
    rig.session.begin_window();
    rig.fake->write(kernel(0, 1, "first", monotonic_ns()));
    rig.session.end_window();
    rig.fake->write(kernel(0, 1, "between", monotonic_ns()));
    EXPECT_EQ(rig.session.open(Tier::t2).state, CuptiState::ready);
    rig.session.begin_window();
    rig.fake->write(kernel(0, 1, "second", monotonic_ns()));
    rig.session.end_window();
    const std::vector<GpuOp> ops = rig.take();
    ASSERT_EQ(ops.size(), 2u);
    EXPECT_EQ(ops[0].name, "first");
    EXPECT_EQ(ops[1].name, "second");
    EXPECT_EQ(rig.fake->subscriptions, 1);
}

TEST(GpuSession, DetectsLateAttach) {
    Rig rig;
    rig.session.open(Tier::t2);
    rig.fake->listener->node_cloned(0x2'0000'0001, 0x1'0000'0001);  // captured before the session
    rig.session.begin_window();
    rig.launch(1);
    rig.fake->write(kernel(0x2'0000'0001, 1, "k", monotonic_ns()));
    rig.session.end_window();
    EXPECT_EQ(rig.take()[0].phase, Phase::none);
    EXPECT_EQ(rig.session.take_losses().unattributed, 1u);
}

TEST(GpuSession, EveryRefusalHasANameAndARemedy) {
    const std::pair<int, CuptiState> cases[] = {
        {15, CuptiState::no_driver}, {999, CuptiState::no_driver},    {39, CuptiState::held},
        {12, CuptiState::held},      {35, CuptiState::no_permission}, {40, CuptiState::no_permission},
        {14, CuptiState::too_old},   {43, CuptiState::unsupported},   {41, CuptiState::unsupported},
        {26, CuptiState::failed},    {7, CuptiState::failed}};
    for (const auto& [code, state] : cases) {
        const CuptiProbe probe = cupti_refusal(code, "message", "", "subscribing");
        EXPECT_EQ(probe.state, state) << code;
        EXPECT_FALSE(probe.text.empty()) << code;
        EXPECT_FALSE(probe.remedy.empty()) << code;
    }
    EXPECT_NE(cupti_refusal(39, "m", "CUPTI for Kineto", "x").text.find("Kineto"), std::string::npos);
}

TEST(GpuSession, RefusalsAndFatalErrorsSetTheState) {
    auto made = std::make_unique<FakeCupti>();
    made->subscribe_answer = cupti_refusal(39, "busy", "Nsight Systems", "subscribing");
    GpuSession held(std::move(made));
    EXPECT_EQ(held.open(Tier::t2).holder, "Nsight Systems");
    EXPECT_EQ(held.tier(), Tier::t0);

    Rig refused;
    refused.fake->enable_answer = 35;
    EXPECT_EQ(refused.session.open(Tier::t2).state, CuptiState::no_permission);
    EXPECT_EQ(refused.session.tier(), Tier::t0);

    Rig dies;
    dies.session.open(Tier::t2);
    dies.fake->listener->on_fatal_error(9);
    EXPECT_EQ(dies.session.state().state, CuptiState::fatal);

    Rig mixed;
    mixed.session.open(Tier::t1);
    EXPECT_EQ(mixed.session.open(Tier::t2).state, CuptiState::failed);
    EXPECT_EQ(mixed.session.tier(), Tier::t1);
}

TEST(GpuSession, PhasesAreThreadLocal) {
    Rig rig;
    rig.session.open(Tier::t2);
    PhaseScope head(rig.recorder, Phase::head);
    std::thread other([&] {
        PhaseRecorder recorder;
        GpuPhaseStack stack;
        recorder.set_range_sink(&stack);
        PhaseScope verify(recorder, Phase::verify);
        rig.fake->listener->node_created(2);
        EXPECT_EQ(current_gpu_context().phase, Phase::verify);
    });
    other.join();
    EXPECT_EQ(current_gpu_context().phase, Phase::head);
}

TEST(GpuSession, RealLibraryReportsItsState) {
    const auto api = make_cupti_api();
    const CuptiProbe probe = api->probe();
    EXPECT_FALSE(probe.text.empty());
    EXPECT_EQ(probe.state == CuptiState::ready, probe.remedy.empty());
    const auto missing = make_cupti_api("/nowhere/libcupti.so")->probe();
    EXPECT_TRUE(missing.state == CuptiState::no_library || missing.state == CuptiState::not_built);
    EXPECT_FALSE(missing.remedy.empty());
}

TEST(GpuPhaseMap, KeepsHistoriesOfReusedIds) {
    GpuPhaseMap map;
    map.created(1, Phase::head, 10);
    map.destroyed(1, 20);
    map.created(1, Phase::verify, 30);
    EXPECT_EQ(map.find_phase(1, 15), Phase::head);
    EXPECT_EQ(map.find_phase(1, 25), Phase::head);  // its record arrives late
    EXPECT_EQ(map.find_phase(1, 35), Phase::verify);
    EXPECT_EQ(map.find_phase(1, 5), std::nullopt);
    map.forget_before(25);
    EXPECT_EQ(map.find_phase(1, 15), std::nullopt);
    EXPECT_EQ(map.find_phase(1, 35), Phase::verify);
    map.destroyed(1, 40);
    map.forget_before(50);
    EXPECT_EQ(map.size(), 0u);
}

// Random captures, instantiations and destructions with reused ids. A plain list of all events is the oracle.
TEST(GpuPhaseMap, MatchesAnEventList) {
    rc::check([] {
        struct Event {
            TimeNs time;
            Phase phase;
        };
        GpuPhaseMap map;
        std::map<std::uint64_t, std::vector<Event>> oracle;
        TimeNs now = 1;
        const int count = *rc::gen::inRange(1, 60);
        for (int i = 0; i < count; ++i, ++now) {
            const auto node = static_cast<std::uint64_t>(*rc::gen::inRange(1, 8));
            const auto other = static_cast<std::uint64_t>(*rc::gen::inRange(1, 8));
            switch (*rc::gen::inRange(0, 3)) {
                case 0: {
                    const auto phase = static_cast<Phase>(*rc::gen::inRange(1, phase_count));
                    map.created(node, phase, now);
                    oracle[node].push_back({now, phase});
                    break;
                }
                case 1: {
                    map.cloned(node, other, now);
                    const auto& from = oracle[other];
                    const Phase phase = from.empty() ? Phase::none : from.back().phase;
                    oracle[node].push_back({now, phase});
                    break;
                }
                default:
                    map.destroyed(node, now);
            }
        }
        for (const auto& [node, events] : oracle)
            for (TimeNs time = 0; time <= now; ++time) {
                std::optional<Phase> wanted;
                for (const Event& event : events)
                    if (event.time <= time) wanted = event.phase;
                RC_ASSERT(map.find_phase(node, time) == wanted);
            }
    });
}

TEST(TierText, ParsesAndRefuses) {
    EXPECT_EQ(*parse_tier("0"), Tier::t0);
    EXPECT_EQ(*parse_tier("T2"), Tier::t2);
    EXPECT_EQ(*parse_tier("auto"), Tier::t0);
    for (const char* wrong : {"3", "T3", "4", "T", "two", "-1", "02"}) {
        const auto parsed = parse_tier(wrong);
        ASSERT_FALSE(parsed.ok()) << wrong;
        EXPECT_EQ(parsed.error().kind, ErrorKind::bad_input);
    }
}

}  // namespace
}  // namespace draftscope
