#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/cuda/bench_weights.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace draftscope::kernels {
namespace {

std::string clocks_now() {
    std::FILE* pipe = popen(
        "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader "
        "2>/dev/null",
        "r");
    if (pipe == nullptr) return {};
    std::array<char, 128> line{};
    std::string text;
    if (std::fgets(line.data(), line.size(), pipe) != nullptr) text = line.data();
    pclose(pipe);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
}

/// What happens between calls.
struct CallMode {
    std::string_view mode;
    bool same = false;                     ///< every call uses the same weights
    std::optional<cuda::Reads> between{};  ///< reads a draft layer's weights between calls
    bool window = false;                   ///< sets an L2 window on the weights
};
constexpr CallMode resident_modes[] = {
    {"kept, plain stream", true, cuda::Reads::plain},
    {"kept, evict-first stream", true, cuda::Reads::evict_first},
    {"kept, plain stream, window", true, cuda::Reads::plain, true},
    {"kept, evict-first stream, window", true, cuda::Reads::evict_first, true},
};
CallMode call_mode(std::string_view mode) {
    if (mode == "in sequence") return {mode, false, cuda::Reads::evict_first};
    return {mode, mode == "warm"};
}

constexpr const char* full_name = "full head ";

using Call = std::function<void(int call, bool warm)>;

/// Queued reads keep the clocks up during the query.
std::string clocks_under_load(DeviceBench& b) {
    const std::size_t bytes = std::min(stream_bytes(b.options), std::size_t{1} << 30);
    for (int i = 0; i < b.options.clock_reads; ++i)
        cuda::launch_read(b.stream.as<void>(), bytes, cuda::Reads::evict_first, b.sink.as<float>(),
                          b.device.stream());
    std::string clocks = clocks_now();
    (void)b.device.synchronize();
    return clocks;
}

/// Calls in one graph. Without a call it has only what happens between calls.
struct Graph {
    std::uint64_t key;
    const Call* call;
    std::vector<double> us{};  ///< per call, of each replay
};
/// Enqueues a graph's work and appends its device time per call; returns false on an error.
bool replay(DeviceBench& b, Graph& graph, const CallMode& way) {
    DeviceTimer& timer = *b.device.timer();
    const auto layer = static_cast<std::size_t>(b.options.layer_mb * 1e6) / 256 * 256;
    const auto work = [&] {
        for (int i = 0; i < b.options.calls; ++i) {
            if (way.between) {
                const std::size_t at = static_cast<std::size_t>(i) % 4 * layer;
                cuda::launch_read(b.stream.as<std::byte>() + std::min(at, b.stream.bytes() - layer), layer,
                                  *way.between, b.sink.as<float>(), b.device.stream());
            }
            if (graph.call != nullptr) (*graph.call)(i, way.same);
        }
    };
    timer.reset();
    const std::uint32_t from = timer.mark();
    b.device.graph(graph.key, work);
    const std::uint32_t to = timer.mark();
    if (!b.device.synchronize().ok()) return false;
    graph.us.push_back(static_cast<double>(timer.elapsed_ns(from, to)) * 1e-3 / b.options.calls);
    return true;
}

/// Times a call. With work between calls, graphs with and without the call alternate, and the time is the
/// median of their differences: the medians of two long times would differ by more than a short call.
void time_call(DeviceBench& b, const Call& call, const CallMode& way, DeviceMeasured& result) {
    constexpr std::ptrdiff_t first = 3;  // the graph is captured, and its kernels are loaded
    Graph with{b.device.new_graph_key(), &call}, without{b.device.new_graph_key(), nullptr};
    for (std::ptrdiff_t turn = 0; turn < first + b.options.replays; ++turn)
        if (!replay(b, with, way) || (way.between && !replay(b, without, way))) return;
    const auto timed = [](std::vector<double>& us) {
        us.erase(us.begin(), us.begin() + first);
        return *std::min_element(us.begin(), us.end());
    };
    result.best_us = timed(with.us);
    if (way.between) {
        result.best_us -= timed(without.us);
        for (std::size_t i = 0; i < with.us.size(); ++i) with.us[i] -= without.us[i];
    }
    std::sort(with.us.begin(), with.us.end());
    const std::size_t count = with.us.size();
    result.median_us = with.us[count / 2];
    result.spread_us = with.us[3 * count / 4] - with.us[count / 4];
}

void measure(DeviceBench& b, const std::string& op, const CallMode& way, int rows, double bytes,
             const Call& call) {
    DeviceMeasured result;
    time_call(b, call, way, result);
    result.op = op;
    result.mode = way.mode;
    result.rows = rows;
    result.bytes = bytes;
    // Relative to the faster of the two variants of the full head.
    for (const DeviceMeasured& other : b.results)
        if (other.op.starts_with(full_name) && other.mode == way.mode && other.rows == rows)
            result.nu = std::max(result.nu, result.median_us / other.median_us);
    b.results.push_back(std::move(result));
    if (b.options.on_measured) b.options.on_measured(b.results.back());
}

void measure(DeviceBench& b, const std::string& op, const std::string& mode, int rows, double bytes,
             const Call& call) {
    measure(b, op, call_mode(mode), rows, bytes, call);
}

/// Notes, once, what a size rules out.
void note_skipped(DeviceBench& b, std::string line) {
    if (std::find(b.skipped.begin(), b.skipped.end(), line) == b.skipped.end())
        b.skipped.push_back(std::move(line));
}

void drop_window(DeviceBench& b) {
    (void)b.device.synchronize();
    const cudaStreamAttrValue none{};
    (void)cudaStreamSetAttribute(b.device.stream(), cudaStreamAttributeAccessPolicyWindow, &none);
    (void)cudaCtxResetPersistingL2Cache();
}

void product(DeviceBench& b, const DeviceMatrix& weights, Activations x, float* y, int rows) {
    MatmulOp op;
    op.weights = weights;
    op.x = x;
    op.rows = rows;
    op.y = y;
    op.y_stride = weights.n;
    b.device.matmul(op);
}

/// The logits of the rows by a head's weights.
void logits(DeviceBench& b, const DeviceMatrix& weights, int rows) {
    product(b, weights, b.x.as<half_t>(), b.y.as<float>(), rows);
}

TopKOp topk_op(const DeviceBench& b, int rows, int stride, int support) {
    TopKOp op;
    op.logits = b.y.as<float>();
    op.stride = stride;
    op.rows = rows;
    op.support = support;
    op.k = b.options.k;
    op.ids = b.ids.as<std::int32_t>();
    op.values = b.values.as<float>();
    op.logsumexp = b.sums.as<float>();
    op.scratch = b.select.as<void>();
    return op;
}

void select_best(DeviceBench& b, int rows, int support) {
    b.device.topk(topk_op(b, rows, support, support));
}

/// Product and selection in one pass.
void one_pass(DeviceBench& b, const DeviceMatrix& weights, Activations x, int rows) {
    b.device.matmul_topk({weights, x, rows, weights.n, b.options.k, nullptr, b.ids.as<std::int32_t>(),
                          b.values.as<float>(), b.sums.as<float>(), b.select.as<void>()});
}

void narrow(DeviceBench& b, const LowRank& pair, int call, bool warm, int rows) {
    const int r = pair.rank, stride = padded_columns(r);
    product(b, pair.down.at(call, warm), b.input->as<half_t>(), b.narrow.as<float>(), rows);
    b.device.cast({b.narrow.as<float>(), r, rows, r, b.narrow_half.as<half_t>(), stride, stride});
}

void low_rank(DeviceBench& b, const LowRank& pair, int call, bool warm, int rows) {
    narrow(b, pair, call, warm, rows);
    product(b, pair.up.at(call, warm), b.narrow_half.as<half_t>(), b.y.as<float>(), rows);
}

/// Computes the outputs in `list` of the full head; the entry before the list is their number.
void indexed(DeviceBench& b, int call, bool warm, int rows, const std::int32_t* list,
             const std::int32_t* count, int max_outputs) {
    MatmulOp op;
    op.weights = b.full.at(call, warm);
    op.x = b.input->as<half_t>();
    op.rows = rows;
    op.y = b.y.as<float>();
    op.y_stride = max_outputs;
    op.chosen = list;
    op.chosen_count = count;
    op.max_chosen = max_outputs;
    b.device.matmul(op);
}

/// Routes by the two factors to the exact best `count` tokens of each row, in one pass.
void route(DeviceBench& b, const LowRank& pair, int count, int call, bool warm, int rows) {
    narrow(b, pair, call, warm, rows);
    b.device.matmul_topk_set({pair.up.at(call, warm), b.narrow_half.as<half_t>(), rows, count,
                              b.shortlists.as<std::int32_t>(), b.router.as<void>()});
}

/// Number of rows that the latest spec_vocab() read.
double union_size(DeviceBench& b) {
    std::int32_t rows = 0;
    b.device.download(&rows, b.size.as<void>(), sizeof rows);
    return b.device.synchronize().ok() ? rows : 0;
}

/// SpecVocab's call with shortlists of `shortlist_size` tokens.
void spec_vocab(DeviceBench& b, const LowRank& pair, int shortlist_size, int call, bool warm, int rows) {
    const int max_outputs = std::min(rows * shortlist_size, b.options.vocab);
    route(b, pair, shortlist_size, call, warm, rows);
    b.device.list_unique_tokens({b.shortlists.as<std::int32_t>(), std::int64_t{rows} * shortlist_size,
                                 b.options.vocab, b.bitmap.as<std::uint32_t>(), b.tokens.as<std::int32_t>(),
                                 b.columns.as<std::int32_t>(), b.size.as<std::int32_t>()});
    indexed(b, call, warm, rows, b.tokens.as<std::int32_t>(), b.size.as<std::int32_t>(), max_outputs);
    TopKOp op = topk_op(b, rows, max_outputs, shortlist_size);
    op.candidates = b.shortlists.as<std::int32_t>();
    op.candidate_stride = shortlist_size;
    op.columns = b.columns.as<std::int32_t>();
    b.device.topk(op);
}

/// Products of many rows, by our kernels and by the library.
Status time_products(DeviceBench& b, DeviceBenchReport& report) {
    const int d = b.options.hidden, n = 4 * d;
    const int max_outputs = *std::max_element(b.options.product_rows.begin(), b.options.product_rows.end());
    const auto outputs = static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(n);
    const auto values = static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(padded_columns(d));
    Copies weights;
    DeviceBuffer x, y;
    if (!weights.make(b.device, cold_bytes(b.options), n, d, 501) ||
        !x.reserve(b.device, values * sizeof(half_t)) || !y.reserve(b.device, outputs * sizeof(float)))
        return failed("{}: not enough memory for products of {} rows", b.device.info().name, max_outputs);
    cuda::launch_fill_normal(x.as<half_t>(), values, 1.0f, 9, b.device.stream());
    const Status found = b.device.use_cublaslt(1);
    report.library = b.device.stats().library;
    b.library_found = found.ok();
    if (!found.ok()) report.why_no_library = found.error().message;
    bool wins = true;
    for (std::size_t i = b.options.product_rows.size(); i-- > 0;) {
        const int rows = b.options.product_rows[i];
        double us[2] = {0, 0};
        for (const int from : {0, 1}) {
            if (from == 1 && !found.ok()) break;
            DS_TRY(b.device.use_cublaslt(from));
            measure(b, fmt::format("product {} x {}{}", n, d, from == 0 ? "" : " by cuBLASLt"), "cold", rows,
                    weights.bytes(), [&](int call, bool warm) {
                        product(b, weights.at(call, warm), x.as<half_t>(), y.as<float>(), rows);
                    });
            b.results.back().flops = 2.0 * n * d * rows;
            us[from] = b.results.back().median_us;
        }
        wins = wins && us[1] > 0 && us[1] < us[0];
        if (wins) report.library_wins_from = rows;
    }
    return b.device.use_cublaslt(0);
}

void time_memory(DeviceBench& b, DeviceBenchReport& report) {
    for (const double mb : {25.0, 50.0, 100.0, 200.0, 400.0, 1000.0, 4000.0}) {
        const auto bytes = static_cast<std::size_t>(mb * 1e6) / 256 * 256;
        if (bytes > stream_bytes(b.options)) break;
        measure(b, fmt::format("read {:.0f} MB", mb), "warm", 0, static_cast<double>(bytes), [&](int, bool) {
            cuda::launch_read(b.stream.as<void>(), bytes, cuda::Reads::plain, b.sink.as<float>(),
                              b.device.stream());
        });
    }
    const std::size_t part = stream_bytes(b.options) / 4;
    measure(b, fmt::format("copy {:.0f} MB", static_cast<double>(part) / 1e6), "warm", 0,
            2.0 * static_cast<double>(part), [&](int, bool) {
                b.device.copy(b.stream.as<std::byte>() + 2 * part, b.stream.as<void>(), part);
            });
    report.copy_gb_per_s = b.results.back().gb_per_s();
    measure(b, "empty kernel", "warm", 0, 0, [&](int, bool) { cuda::launch_empty(b.device.stream()); });
    report.largest_cluster = cuda::largest_cluster();
    if (report.largest_cluster == 0) return;  // a GPU without clusters has no programmatic launch, either
    measure(b, "empty kernel, started early", "warm", 0, 0,
            [&](int, bool) { cuda::launch_early(b.device.stream()); });
}

/// How much of a head's weights stays in L2 while a draft layer's weights are streamed. Compares
/// evict-first reads with plain ones, and with an access-policy window on the head's weights. For the
/// low-rank pair the window covers the first factor, because the second is larger than L2. Only for the
/// first size and rank of a list.
void time_residency(DeviceBench& b, int rows) {
    const auto each = [&](const std::string& op, const Copies& held, double bytes, const Call& call) {
        for (const CallMode& way : resident_modes) {
            if (way.window &&
                !b.device.set_l2_persisting(held.at(0, true).data, static_cast<std::size_t>(held.bytes())))
                break;
            measure(b, op, way, rows, bytes, call);
        }
    };
    const Gathered& gathered = b.gathered.front();
    each(fmt::format("packed head {} in one pass", gathered.count), gathered.packed, gathered.packed.bytes(),
         [&](int call, bool warm) { one_pass(b, gathered.packed.at(call, warm), b.x.as<half_t>(), rows); });
    drop_window(b);
    const LowRank& pair = b.pairs.front();
    each(fmt::format("low-rank head r={} in one pass", pair.rank), pair.down, pair.bytes(),
         [&](int call, bool warm) {
             narrow(b, pair, call, warm, rows);
             one_pass(b, pair.up.at(call, warm), b.narrow_half.as<half_t>(), rows);
         });
    drop_window(b);
}

/// Whole SpecVocab calls with shortlists of `count` tokens.
void spec_vocab_heads(DeviceBench& b, const LowRank& pair, int count, int rows, const std::string& mode) {
    const double row = padded_columns(b.options.hidden) * 2.0;
    // Uncorrelated rows give the largest union.
    for (const DeviceBuffer* input : {&b.correlated, &b.x}) {
        if (input == &b.x && rows == 1) break;
        b.input = input;
        measure(b,
                fmt::format("specvocab r={} top {}{}", pair.rank, count,
                            input == &b.x ? ", uncorrelated rows" : ""),
                mode, rows, pair.bytes(),
                [&](int call, bool warm) { spec_vocab(b, pair, count, call, warm, rows); });
        b.results.back().bytes = pair.bytes() + union_size(b) * row;
    }
    b.input = &b.x;
}

void low_rank_heads(DeviceBench& b, const LowRank& pair, int rows, const std::string& mode) {
    const DeviceBenchOptions& o = b.options;
    measure(b, fmt::format("low-rank head r={} in one pass", pair.rank), mode, rows, pair.bytes(),
            [&](int call, bool warm) {
                narrow(b, pair, call, warm, rows);
                one_pass(b, pair.up.at(call, warm), b.narrow_half.as<half_t>(), rows);
            });
    measure(b, fmt::format("low-rank head r={} + top-k", pair.rank), mode, rows, pair.bytes(),
            [&](int call, bool warm) {
                low_rank(b, pair, call, warm, rows);
                select_best(b, rows, o.vocab);
            });
    measure(b, fmt::format("router r={}", pair.rank), mode, rows, pair.bytes(),
            [&](int call, bool warm) { low_rank(b, pair, call, warm, rows); });
}

/// The heads that select `count` tokens by the low-rank scores.
void routed_heads(DeviceBench& b, const LowRank& pair, int count, int rows, const std::string& mode) {
    const DeviceBenchOptions& o = b.options;
    measure(b, fmt::format("router r={} + exact top {}", pair.rank, count), mode, rows, pair.bytes(),
            [&](int call, bool warm) {
                low_rank(b, pair, call, warm, rows);
                b.device.topk_set(
                    {b.y.as<float>(), o.vocab, rows, o.vocab, count, b.shortlists.as<std::int32_t>()});
            });
    if (!can_route(o.vocab, count)) {
        note_skipped(
            b, fmt::format("router and specvocab with top {}: of V {} the fused router selects fewer", count,
                           o.vocab));
        return;
    }
    measure(b, fmt::format("router r={} with top {} in one pass", pair.rank, count), mode, rows, pair.bytes(),
            [&](int call, bool warm) { route(b, pair, count, call, warm, rows); });
    spec_vocab_heads(b, pair, count, rows, mode);
}

void gathered_heads(DeviceBench& b, const Gathered& one, int rows, const std::string& mode) {
    const double bytes = one.packed.bytes();
    const int count = one.count;
    measure(b, fmt::format("packed head {} in one pass", count), mode, rows, bytes,
            [&](int call, bool warm) { one_pass(b, one.packed.at(call, warm), b.x.as<half_t>(), rows); });
    measure(b, fmt::format("packed head {} + top-k", count), mode, rows, bytes, [&](int call, bool warm) {
        logits(b, one.packed.at(call, warm), rows);
        select_best(b, rows, count);
    });
    measure(b, fmt::format("indexed rows {}", count), mode, rows, bytes, [&](int call, bool warm) {
        const std::int32_t* list = one.random.at(call, warm);
        indexed(b, call, warm, rows, list, list - 1, count);
    });
    measure(b, fmt::format("contiguous rows {}", count), mode, rows, bytes, [&](int call, bool warm) {
        const std::int32_t* list = one.neighbours.at(call, warm);
        indexed(b, call, warm, rows, list, list - 1, count);
    });
    const auto gather = [&](int call, bool warm) {
        const DeviceMatrix to = one.packed.at(call, warm);
        b.device.gather(
            {b.full.at(call, warm), one.random.at(call, warm), count, const_cast<half_t*>(to.data)});
        return to;
    };
    measure(b, fmt::format("gather {} rows", count), mode, rows, 2 * bytes, gather);
    // An indexed product saves this copy.
    measure(b, fmt::format("gather and product of {} rows", count), mode, rows, 3 * bytes,
            [&](int call, bool warm) { logits(b, gather(call, warm), rows); });
}

/// The heads' full products by the library.
void by_library(DeviceBench& b, int rows, const std::string& mode) {
    if (!b.library_found || !b.device.use_cublaslt(1).ok()) return;
    measure(b, "cuBLASLt: logits of the full head", mode, rows, b.full.bytes(),
            [&](int call, bool warm) { logits(b, b.full.at(call, warm), rows); });
    for (const LowRank& pair : b.pairs)
        measure(b, fmt::format("cuBLASLt: router r={}", pair.rank), mode, rows, pair.bytes(),
                [&](int call, bool warm) { low_rank(b, pair, call, warm, rows); });
    (void)b.device.use_cublaslt(0);
}

void time_heads(DeviceBench& b, int rows, const std::string& mode) {
    const DeviceBenchOptions& o = b.options;
    measure(b, fmt::format("{}+ top-k", full_name), mode, rows, b.full.bytes(), [&](int call, bool warm) {
        logits(b, b.full.at(call, warm), rows);
        select_best(b, rows, o.vocab);
    });
    measure(b, fmt::format("{}in one pass", full_name), mode, rows, b.full.bytes(),
            [&](int call, bool warm) { one_pass(b, b.full.at(call, warm), b.x.as<half_t>(), rows); });
    measure(b, "logits of the full head alone", mode, rows, b.full.bytes(),
            [&](int call, bool warm) { logits(b, b.full.at(call, warm), rows); });
    measure(b, fmt::format("static head {} in one pass", o.trimmed), mode, rows, b.trimmed.bytes(),
            [&](int call, bool warm) { one_pass(b, b.trimmed.at(call, warm), b.x.as<half_t>(), rows); });
    measure(b, fmt::format("static head {} + top-k", o.trimmed), mode, rows, b.trimmed.bytes(),
            [&](int call, bool warm) {
                logits(b, b.trimmed.at(call, warm), rows);
                select_best(b, rows, o.trimmed);
            });
    for (const LowRank& pair : b.pairs) {
        low_rank_heads(b, pair, rows, mode);
        for (const int count : o.gather) routed_heads(b, pair, count, rows, mode);
    }
    for (const Gathered& one : b.gathered) gathered_heads(b, one, rows, mode);
    by_library(b, rows, mode);
}

Status run_bench(DeviceBench& b, DeviceBenchReport& report) {
    if (!make_weights(b)) return failed("{}: not enough memory for these sizes", b.device.info().name);
    DS_TRY(b.device.synchronize());
    report.clocks_before = clocks_under_load(b);
    time_memory(b, report);
    DS_TRY(time_products(b, report));
    for (const int rows : b.options.rows) {
        DS_TRY(make_rows(b, rows));
        for (const char* mode : {"cold", "warm", "in sequence"}) time_heads(b, rows, mode);
        DS_TRY(b.device.synchronize());
    }
    DS_TRY(make_rows(b, b.options.rows.front()));
    time_residency(b, b.options.rows.front());
    report.clocks_after = clocks_under_load(b);
    report.ops = std::move(b.results);
    report.not_timed = std::move(b.skipped);
    return b.device.synchronize();
}

}  // namespace

Result<DeviceBenchReport> bench_cuda(const DeviceBenchOptions& options) {
    CudaOptions cuda_options;
    cuda_options.cache_windows = true;  // no window is set before residency()
    DS_ASSIGN(const auto device, open_cuda_device(cuda_options));
    DeviceBenchReport report;
    report.device = device->info();
    DeviceBench bench{options, *device};
    DS_TRY(run_bench(bench, report));
    return report;
}

}  // namespace draftscope::kernels
