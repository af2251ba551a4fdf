#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "engine/transformer/target.h"
#include "tests/support/demo_model.h"

/// Times the demo target and drafter as a decode loop uses them. `bytes_per_second` counts the weights, keys
/// and values that are read, `multiply_adds` those of the products. Arguments: threads=N and isa=NAME.
/// DRAFTSCOPE_DEMO_MODEL names another target.
namespace draftscope {
namespace {

using kernels::Precision;

constexpr int context_length = 256;  ///< committed tokens at the start of a timed step

int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
kernels::Isa isa = kernels::best_isa();

kernels::Backend& shared_exec() {
    static const std::unique_ptr<kernels::Backend> exec = kernels::make_cpu_backend(threads, isa);
    return *exec;
}

Target& find_target(Precision precision) {
    static std::map<Precision, std::unique_ptr<Target>> targets;
    std::unique_ptr<Target>& target = targets[precision];
    if (target == nullptr) {
        auto loaded = Target::load(testing::demo_model_path(), shared_exec(), precision);
        if (!loaded.ok()) {
            std::fprintf(stderr, "%s\n%s\n", loaded.error().message.c_str(),
                         testing::demo_model_hint().c_str());
            std::exit(2);
        }
        target = std::move(loaded).value();
    }
    return *target;
}

std::vector<TokenId> some_tokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(1000 + (i * 7919) % 40000);
    return tokens;
}

void must(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    std::exit(1);
}

void prefill(benchmark::State& state, Precision precision, int tokens) {
    Target& target = find_target(precision);
    KvCache cache = target.make_cache(tokens);
    const std::vector<TokenId> prompt = some_tokens(tokens);
    ForwardOutput out;
    for (auto _ : state) {
        cache.clear();
        must(target.prefill(cache, prompt, {}, out));
    }
    state.SetItemsProcessed(state.iterations() * tokens);
}

/// Multiply-adds of one row in the target's products.
double multiply_adds(const Target& target) {
    const ModelConfig& c = target.config();
    const double d = c.hidden, heads = c.heads + c.kv_heads;
    return c.layers * (2 * d * heads * c.head_dim + 3 * d * c.ffn) + d * target.lm_head().n();
}

/// Verifies `rows` nodes, in pairs under the root, like a draft tree. One row is plain decoding.
void verify(benchmark::State& state, Precision precision, int rows) {
    Target& target = find_target(precision);
    KvCache cache = target.make_cache(context_length + rows);
    ForwardOutput out;
    must(target.prefill(cache, some_tokens(context_length), {}, out));
    std::vector<int> parents{-1}, depths{0};
    for (int i = 1; i < rows; ++i) {
        parents.push_back((i - 1) / 2);
        depths.push_back(depths[parents.back()] + 1);
    }
    const AncestorMask mask = AncestorMask::from_parents(parents);
    const std::vector<TokenId> tokens = some_tokens(rows);
    const SequenceTokens sequence{&cache, tokens, depths, &mask};
    for (auto _ : state) must(target.forward({{&sequence, 1}, {}, {}, true}, out));
    state.SetItemsProcessed(state.iterations() * rows);
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(out.bytes));
    state.counters["multiply_adds"] =
        benchmark::Counter(rows * multiply_adds(target), benchmark::Counter::kIsIterationInvariantRate);
}

/// One round of EAGLE-2 with the full head: extends the cache by two slots and drafts a tree.
void draft(benchmark::State& state, Precision precision, TreeSpec spec) {
    Target& target = find_target(precision);
    auto made =
        make_drafter("eagle2", std::string(DS_SOURCE_DIR) + "/assets/drafters/eagle2", target, shared_exec());
    must(made.ok() ? Status() : Status(made.error()));
    Drafter& drafter = *made.value();
    auto head = std::move(make_head({"full", {}}, {})).value();
    HeadWeights weights;
    weights.lm_head = &target.lm_head();
    weights.vocab = target.config().vocab;
    weights.hidden = target.config().hidden;
    must(head->prepare(shared_exec(), weights));
    PhaseRecorder phases;
    DraftContext with{shared_exec(), phases, head.get(), spec, nullptr};
    const std::vector<TokenId> tokens = some_tokens(context_length + 1);
    const std::vector<float> hidden(static_cast<std::size_t>(context_length * target.config().hidden), 0.25f);
    const Rows<const float> features(hidden.data(), context_length, target.config().hidden);
    const std::unique_ptr<DrafterState> drafter_state = drafter.make_state(context_length);
    DraftJob job;
    job.tokens = tokens;
    job.new_hidden = features;
    job.state = drafter_state.get();
    job.tree = spec;
    DraftRunner drafting(drafter);
    must(drafting.draft(with, {&job, 1}));
    std::vector<SpanEvent> events;
    for (auto _ : state) {
        must(drafting.draft(with, {&job, 1}));
        phases.drain(events);
        events.clear();
    }
}

void add_benchmarks() {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        const std::string type(kernels::to_text(precision));
        const auto add = [&](const std::string& name, auto body) {
            benchmark::RegisterBenchmark((name + "/" + type).c_str(), body)
                ->UseRealTime()
                ->Unit(benchmark::kMillisecond);
        };
        add("prefill:256", [=](benchmark::State& state) { prefill(state, precision, 256); });
        for (int rows = 1; rows <= 24; rows += rows < 16 ? 1 : 8)
            add("verify:" + std::to_string(rows),
                [=](benchmark::State& state) { verify(state, precision, rows); });
        add("draft:3,4,12", [=](benchmark::State& state) { draft(state, precision, {3, 4, 12}); });
        add("draft:chain=5", [=](benchmark::State& state) { draft(state, precision, {4, 1, 6}); });
    }
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using draftscope::kernels::Isa;
    benchmark::Initialize(&argc, argv);
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "threads=", 8) == 0)
            draftscope::threads = std::max(1, std::atoi(argv[i] + 8));
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx_vnni, Isa::avx512, Isa::avx512_vnni,
                              Isa::avx512_bf16, Isa::amx}) {
            if (argv[i] == "isa=" + std::string(draftscope::kernels::to_text(isa))) draftscope::isa = isa;
        }
    }
    draftscope::add_benchmarks();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
