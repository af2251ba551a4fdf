// Checks the CUPTI session on a real GPU: every kernel in a graph is in the phase of its capture. Part of
// tests/gpu/checklist.sh, not of ctest. Options: --tier1, graph records; --late, a subscription after the
// context exists, which is refused or has right times; --early, the values of a graph with early launches,
// without CUPTI; --early-traced, the phases of its kernels. Prints the counts; exits with 1 after an error.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "profiler/cupti/gpu_session.h"
#include "tests/gpu/graph_workload.h"

namespace draftscope {
namespace {

int wrong = 0;

void expect(bool good, const std::string& what) {
    std::printf("%s %s\n", good ? "ok   " : "WRONG", what.c_str());
    wrong += good ? 0 : 1;
}

void need(const char* error) {
    if (*error == '\0') return;
    std::printf("WRONG CUDA refused: %s\n", error);
    std::exit(1);
}

/// Opens phases by name on the only thread's recorder.
struct Phases {
    PhaseRecorder recorder;
    GpuPhaseStack stack;
    std::unique_ptr<PhaseScope> open;

    Phases() { recorder.set_range_sink(&stack); }
    static void begin(void* self, const char* name) {
        auto& phases = *static_cast<Phases*>(self);
        for (const PhaseRow& phase : phase_rows)
            if (phase.name == name)
                phases.open = std::make_unique<PhaseScope>(phases.recorder, static_cast<Phase>(phase.id));
    }
    static void end(void* self) { static_cast<Phases*>(self)->open.reset(); }
    gpu_test::PhaseHooks hooks() { return {begin, end, this}; }
};

std::string wanted_phase(const GpuOp& op) {
    if (op.kind == GpuOpKind::memset) return "verify";
    return op.name.substr(0, op.name.find("_kernel"));
}

void check_kernels(GpuSession& session, Phases& phases) {
    constexpr int launches = 100;
    session.begin_window();
    for (int i = 0; i < launches; ++i) need(gpu_test::launch_graph(i % 2));
    need(gpu_test::capture_again(phases.hooks()));
    for (int i = 0; i < launches; ++i) need(gpu_test::launch_graph(i % 2));
    for (int i = 0; i < launches; ++i) need(gpu_test::launch_eagerly(phases.hooks()));
    session.end_window();
    std::vector<GpuOp> ops;
    std::vector<GpuCall> calls;
    session.take(ops, calls);
    std::map<std::string, int> count;
    int misplaced = 0, no_launch = 0;
    for (const GpuOp& op : ops) {
        ++count[wanted_phase(op) + (op.graph_node != 0 ? " in a graph" : " eager")];
        misplaced += wanted_phase(op) != to_text(op.phase);
        no_launch += op.launch_ns == 0;
    }
    for (const auto& [what, n] : count) std::printf("      %d ops of %s\n", n, what.c_str());
    expect(misplaced == 0, fmt::format("ops outside their phase: {} of {}", misplaced, ops.size()));
    expect(no_launch == 0, fmt::format("ops without a launch: {}", no_launch));
    expect(count["backbone in a graph"] == 2 * launches, "one backbone kernel per graph launch");
    expect(count["head in a graph"] == 4 * launches, "two head kernels per graph launch");
    expect(count["verify in a graph"] == 4 * launches, "a verify kernel and its fill per graph launch");
    expect(count["backbone eager"] == launches, "eager kernels");
    const GpuLosses losses = session.take_losses();
    expect(losses.dropped == 0 && losses.queue_full == 0 && losses.zero_timestamps == 0,
           fmt::format("losses: {} dropped, {} for a full queue, {} without times", losses.dropped,
                       losses.queue_full, losses.zero_timestamps));
    expect(losses.before_launch == 0, fmt::format("ops before their launch: {}, worst {} ns",
                                                  losses.before_launch, losses.worst_before_launch_ns));
    std::printf("      %zu calls\n", calls.size());
}

/// Graph records: the graph holds three phases, so no phase may claim it.
void check_graphs(GpuSession& session) {
    session.begin_window();
    for (int i = 0; i < 50; ++i) need(gpu_test::launch_graph(i % 2));
    session.end_window();
    std::vector<GpuOp> ops;
    std::vector<GpuCall> calls;
    session.take(ops, calls);
    int graphs = 0, claimed = 0;
    for (const GpuOp& op : ops)
        if (op.kind == GpuOpKind::graph) {
            ++graphs;
            claimed += op.phase != Phase::none;
        }
    expect(graphs == 50, fmt::format("graph records: {} of 50", graphs));
    expect(claimed == 0, "a graph of several phases has none");
}

/// Early kernels overlap, but each is in the phase of its capture and begins after its launch.
void check_early(GpuSession& session) {
    constexpr int launches = 100;
    session.begin_window();
    for (int i = 0; i < launches; ++i) need(gpu_test::launch_graph(i % 2));
    session.end_window();
    std::vector<GpuOp> ops;
    std::vector<GpuCall> calls;
    session.take(ops, calls);
    std::ranges::sort(ops, {}, &GpuOp::start_ns);
    int misplaced = 0, overlapping = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        misplaced += wanted_phase(ops[i]) != to_text(ops[i].phase);
        overlapping += i > 0 && ops[i].start_ns < ops[i - 1].end_ns;
    }
    const std::size_t wanted = 2 * gpu_test::early_pairs * launches;
    expect(ops.size() == wanted, fmt::format("early kernels: {} of {}", ops.size(), wanted));
    expect(misplaced == 0, fmt::format("early kernels outside their phase: {}", misplaced));
    std::printf("      %d start before the kernel before them ends\n", overlapping);
    expect(session.take_losses().before_launch == 0, "no kernel before its launch");
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    const auto has_option = [&](const char* option) { return argc > 1 && std::strcmp(argv[1], option) == 0; };
    const bool graphs = has_option("--tier1"), late = has_option("--late"),
               early_traced = has_option("--early-traced");
    if (has_option("--early")) {
        need(gpu_test::prepare());
        need(gpu_test::capture_early({}));
        bool same = false;
        need(gpu_test::compare_early(same));
        expect(same, "a graph with early launches computes what plain launches do");
        return wrong == 0 ? 0 : 1;
    }
    if (late) need(gpu_test::prepare());  // creates the context
    const CuptiProbe state = gpu_session().open(graphs ? Tier::t1 : Tier::t2);
    std::printf("CUPTI %s: %s %s\n", std::string(to_text(state.state)).c_str(), state.text.c_str(),
                state.remedy.c_str());
    if (late && state.state == CuptiState::failed && state.version < 130303) {
        expect(!state.remedy.empty(), "a late subscription is refused with a remedy");
        return wrong == 0 ? 0 : 1;
    }
    if (state.state != CuptiState::ready) return 1;
    Phases phases;
    if (!late) need(gpu_test::prepare());
    need(early_traced ? gpu_test::capture_early(phases.hooks()) : gpu_test::capture(phases.hooks()));
    if (early_traced)
        check_early(gpu_session());
    else if (graphs)
        check_graphs(gpu_session());
    else
        check_kernels(gpu_session(), phases);
    return wrong == 0 ? 0 : 1;
}
