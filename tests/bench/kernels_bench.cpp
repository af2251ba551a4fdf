#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/host_rows.h"
#include "tests/support/row_ops.h"

/// Times the kernels at the shapes of SmolLM2-135M (30 layers, d 576, ffn 1536, 9/3 heads of 64, V 49152).
/// `bytes_per_second` counts the weights, or keys and values, that are read. Inputs are never zeros, and
/// never one cached layer.
namespace draftscope::kernels {
namespace {

constexpr int layers = 30;
constexpr int width = 576;
constexpr int ffn = 1536;
constexpr int vocab = 49152;
constexpr int heads = 9;
constexpr int kv_heads = 3;
constexpr int head_dim = 64;

Isa isa = best_isa();  ///< set by the argument isa=NAME

ThreadPool& find_exec(int threads) {
    static std::map<int, std::unique_ptr<ThreadPool>> execs;
    std::unique_ptr<ThreadPool>& exec = execs[threads];
    if (exec == nullptr) exec = make_thread_pool(threads, isa);
    return *exec;
}

int all_threads() {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::vector<float> normal(std::size_t count, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(rng.normal());
    return values;
}

Matrix random_matrix(Precision precision, int n, int k, std::uint64_t seed) {
    return Matrix::pack(find_exec(all_threads()), precision, n, k, [&](int row, float* out) {
        Rng rng(seed, static_cast<std::uint64_t>(row));
        for (int i = 0; i < k; ++i) out[i] = static_cast<float>(rng.uniform() - 0.5) * 0.1f;
    });
}

/// All matrices of a forward pass, so that a repetition finds none of them in the inner caches.
struct Weights {
    explicit Weights(Precision precision) : head(random_matrix(precision, vocab, width, 1)) {
        for (int l = 0; l < layers; ++l) {
            const auto seed = static_cast<std::uint64_t>(10 * l + 10);
            body.push_back(random_matrix(precision, (heads + 2 * kv_heads) * head_dim, width, seed));
            body.push_back(random_matrix(precision, width, width, seed + 1));
            body.push_back(random_matrix(precision, 2 * ffn, width, seed + 2));
            body.push_back(random_matrix(precision, width, ffn, seed + 3));
        }
    }
    std::size_t bytes() const {
        std::size_t sum = head.bytes();
        for (const Matrix& matrix : body) sum += matrix.bytes();
        return sum;
    }
    std::vector<Matrix> body;
    Matrix head;
};

const Weights& find_weights(Precision precision) {
    static std::map<Precision, std::unique_ptr<Weights>> all;
    if (all.count(precision) == 0) {
        all.clear();
        all[precision] = std::make_unique<Weights>(precision);
    }
    return *all[precision];
}

/// All matmuls of a forward pass of M rows, including the LM head.
void forward_matmuls(benchmark::State& state, Precision precision) {
    const int m = static_cast<int>(state.range(0));
    ThreadPool& exec = find_exec(static_cast<int>(state.range(1)));
    const Weights& weights = find_weights(precision);
    const std::vector<float> x = normal(numel(m, ffn), 7);
    std::vector<float> y(numel(m, vocab));
    const auto apply = [&](const Matrix& w) {
        matmul(exec, w, Rows<const float>(x.data(), m, w.k()), Rows<float>(y.data(), m, w.n()));
    };
    for (auto unused : state) {
        for (const Matrix& w : weights.body) apply(w);
        apply(weights.head);
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(weights.bytes()) * state.iterations());
    state.counters["rows/s"] = benchmark::Counter(m, benchmark::Counter::kIsIterationInvariantRate);
}

void head_matmul(benchmark::State& state, Precision precision) {
    const int m = static_cast<int>(state.range(0));
    ThreadPool& exec = find_exec(all_threads());
    const Matrix& head = find_weights(precision).head;
    const std::vector<float> x = normal(numel(m, width), 7);
    std::vector<float> y(numel(m, vocab));
    for (auto unused : state)
        matmul(exec, head, Rows<const float>(x.data(), m, width), Rows<float>(y.data(), m, vocab));
    state.SetBytesProcessed(static_cast<std::int64_t>(head.bytes()) * state.iterations());
}

/// Attention of all layers: M consecutive queries at the end of a context (range 0, range 1).
template <KvType type>
void forward_attention(benchmark::State& state) {
    const int m = static_cast<int>(state.range(0));
    const int context = static_cast<int>(state.range(1));
    ThreadPool& exec = find_exec(all_threads());
    const std::size_t kv = static_cast<std::size_t>(context) * kv_heads * head_dim;
    constexpr int kv_width = kv_heads * head_dim;
    const std::size_t key_layer = key_bytes(type, kv_width, context),
                      value_layer = kv * bytes_per_value(type);
    std::vector<std::byte> keys(key_layer * layers), values(value_layer * layers);
    const std::vector<float> drawn = normal(kv * layers, 1);
    for (int l = 0; l < layers; ++l) {
        for (int p = 0; p < context; ++p) {
            const float* row = drawn.data() + (std::ptrdiff_t{l} * context + p) * kv_width;
            const auto layer = static_cast<std::size_t>(l);
            store_key(exec, type, row, kv_width, p, keys.data() + key_layer * layer);
            store_value(exec, type, row, kv_width, p, values.data() + value_layer * layer);
        }
    }
    const std::vector<float> q = normal(static_cast<std::size_t>(m) * heads * head_dim, 3);
    std::vector<float> out(q.size());
    std::vector<AttentionQuery> queries(static_cast<std::size_t>(m));
    for (auto unused : state) {
        for (int l = 0; l < layers; ++l) {
            for (int i = 0; i < m; ++i) {
                AttentionQuery& query = queries[i];
                query.q = q.data() + static_cast<std::ptrdiff_t>(i) * heads * head_dim;
                query.out = out.data() + static_cast<std::ptrdiff_t>(i) * heads * head_dim;
                query.keys = keys.data() + key_layer * static_cast<std::size_t>(l);
                query.values = values.data() + value_layer * static_cast<std::size_t>(l);
                query.prefix = context - m + 1 + i;
            }
            attention(exec, {heads, kv_heads, head_dim, 0.125f, type}, queries);
        }
    }
    state.SetBytesProcessed(static_cast<std::int64_t>((key_layer + value_layer) * layers) *
                            state.iterations());
}

/// The small ops of all layers: two norms, residuals and the gated activation.
void forward_small_ops(benchmark::State& state) {
    const int m = static_cast<int>(state.range(0));
    ThreadPool& exec = find_exec(all_threads());
    std::vector<float> x = normal(numel(m, width), 1);
    std::vector<float> y(x.size());
    std::vector<float> gate = normal(numel(m, ffn), 2);
    std::vector<float> up = normal(gate.size(), 3);
    const std::vector<float> weight = normal(width, 4);
    for (auto unused : state) {
        for (int l = 0; l < layers; ++l) {
            rms_norm(exec, Rows<const float>(x.data(), m, width), weight, 1e-5f,
                     Rows<float>(y.data(), m, width));
            rms_norm(exec, Rows<const float>(x.data(), m, width), weight, 1e-5f,
                     Rows<float>(y.data(), m, width));
            add(exec, Rows<const float>(y.data(), m, width), Rows<float>(y.data(), m, width));
            add(exec, Rows<const float>(x.data(), m, width), Rows<float>(y.data(), m, width));
            silu_mul(exec, Rows<const float>(gate.data(), m, ffn), Rows<const float>(up.data(), m, ffn),
                     Rows<float>(up.data(), m, ffn));
        }
        benchmark::DoNotOptimize(up.data());
    }
}

void top_k(benchmark::State& state) {
    const int m = static_cast<int>(state.range(0));
    const int k = static_cast<int>(state.range(1));
    ThreadPool& exec = find_exec(all_threads());
    const std::vector<float> x = normal(numel(m, vocab), 1);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(m * k));
    std::vector<float> values(ids.size());
    for (auto unused : state) {
        topk(exec, Rows<const float>(x.data(), m, vocab), k, Rows<std::int32_t>(ids.data(), m, k),
             Rows<float>(values.data(), m, k));
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(x.size() * sizeof(float)) * state.iterations());
}

void log_sum_exp(benchmark::State& state) {
    const int m = static_cast<int>(state.range(0));
    ThreadPool& exec = find_exec(all_threads());
    const std::vector<float> x = normal(numel(m, vocab), 1);
    std::vector<float> out(static_cast<std::size_t>(m));
    for (auto unused : state) logsumexp(exec, Rows<const float>(x.data(), m, vocab), out);
    state.SetBytesProcessed(static_cast<std::int64_t>(x.size() * sizeof(float)) * state.iterations());
}

void pool_meeting(benchmark::State& state) {
    ThreadPool& exec = find_exec(static_cast<int>(state.range(0)));
    for (auto unused : state) exec.parallel(exec.threads(), [](int) {});
}

void gather_rows(benchmark::State& state) {
    const int count = static_cast<int>(state.range(0));
    ThreadPool& exec = find_exec(all_threads());
    const Matrix& head = find_weights(Precision::int8).head;
    Rng rng(1);
    std::vector<TokenId> ids(static_cast<std::size_t>(count));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.below(vocab));
    for (auto unused : state) benchmark::DoNotOptimize(head.gather_rows(exec, ids).data());
}

void register_all() {
    for (const Precision precision : {Precision::int8, Precision::bf16, Precision::f32}) {
        const std::string name(to_text(precision));
        for (const int threads : {all_threads(), 1}) {
            auto* run = benchmark::RegisterBenchmark(
                ("forward_matmuls/" + name).c_str(),
                [precision](benchmark::State& state) { forward_matmuls(state, precision); });
            for (const int m : {1, 2, 4, 8, 12, 16, 64, 128}) run->Args({m, threads});
            run->ArgNames({"rows", "threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
        }
        benchmark::RegisterBenchmark(("head_matmul/" + name).c_str(),
                                     [precision](benchmark::State& state) { head_matmul(state, precision); })
            ->Arg(1)
            ->Arg(4)
            ->Arg(10)
            ->ArgName("rows")
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
    }
    const std::pair<const char*, void (*)(benchmark::State&)> attentions[] = {
        {"forward_attention/f32", forward_attention<KvType::f32>},
        {"forward_attention/f16", forward_attention<KvType::f16>}};
    for (const auto& [name, run] : attentions) {
        benchmark::RegisterBenchmark(name, run)
            ->ArgsProduct({{1, 8}, {128, 512, 2048, 8192}})
            ->Args({128, 128})
            ->Args({128, 2048})
            ->Args({128, 8192})
            ->ArgNames({"queries", "context"})
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
    }
    benchmark::RegisterBenchmark("forward_small_ops", forward_small_ops)
        ->Arg(1)
        ->Arg(8)
        ->Arg(128)
        ->ArgName("rows")
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark("topk", top_k)
        ->ArgsProduct({{1, 10}, {1, 10, 64, 2048}})
        ->ArgNames({"rows", "k"})
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark("logsumexp", log_sum_exp)
        ->Arg(1)
        ->Arg(10)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark("pool_meeting", pool_meeting)->Arg(1)->Arg(2)->UseRealTime();
    benchmark::RegisterBenchmark("gather_rows/int8", gather_rows)
        ->Arg(3072)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
}

}  // namespace
}  // namespace draftscope::kernels

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    using draftscope::kernels::Isa;
    for (int a = 1; a < argc; ++a) {
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx_vnni, Isa::avx512, Isa::avx512_vnni,
                              Isa::avx512_bf16, draftscope::kernels::Isa::amx}) {
            if (argv[a] == "isa=" + std::string(draftscope::kernels::to_text(isa)))
                draftscope::kernels::isa = isa;
        }
    }
    draftscope::kernels::register_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
