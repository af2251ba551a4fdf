#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/rng.h"
#include "kernels/cuda/bench_weights.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/device_bench.h"
#include "kernels/ops/float16.h"

namespace draftscope::kernels {
namespace {

/// Correlation between the rows of a tree level. With it, four rows' shortlists of 2048 have the same union
/// size as SpecVocab's on the demo model (docs/MEASUREMENTS.md).
constexpr double row_correlation = 0.96;

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
constexpr CallMode kept_modes[] = {
    {"kept, plain stream", true, cuda::Reads::plain},
    {"kept, evict-first stream", true, cuda::Reads::evict_first},
    {"kept, plain stream, window", true, cuda::Reads::plain, true},
    {"kept, evict-first stream, window", true, cuda::Reads::evict_first, true},
};
CallMode call_mode(std::string_view mode) {
    if (mode == "in sequence") return {mode, false, cuda::Reads::evict_first};
    return {mode, mode == "warm"};
}

class Bench {
  public:
    Bench(const DeviceBenchOptions& options, CudaBackend& device) : options_(options), device_(device) {}

    Status run(DeviceBenchReport& report) {
        if (!make_weights()) return failed("{}: not enough memory for these sizes", device_.info().name);
        DS_TRY(device_.synchronize());
        report.clocks_before = clocks_under_load();
        memory(report);
        DS_TRY(products(report));
        for (const int rows : options_.rows) {
            DS_TRY(make_rows(rows));
            for (const char* mode : {"cold", "warm", "in sequence"}) heads(rows, mode);
            DS_TRY(device_.synchronize());
        }
        DS_TRY(make_rows(options_.rows.front()));
        residency(options_.rows.front());
        report.clocks_after = clocks_under_load();
        report.ops = std::move(results_);
        report.not_timed = std::move(not_timed_);
        return device_.synchronize();
    }

  private:
    using Call = std::function<void(int call, bool warm)>;

    /// The factors of a low-rank head or router.
    struct LowRank {
        int rank = 0;
        Copies down, up;
        double bytes() const { return down.bytes() + up.bytes(); }
    };
    /// A head of `count` gathered rows.
    struct Gathered {
        int count = 0;
        Copies packed;
        RowLists random, neighbours;
    };
    double cold_bytes() const { return options_.cold_mb * 1e6; }
    std::size_t stream_bytes() const {
        return static_cast<std::size_t>(options_.stream_mb * 1e6) / 1024 * 1024;
    }
    int max_gather() const { return *std::max_element(options_.gather.begin(), options_.gather.end()); }
    int max_rank() const { return *std::max_element(options_.rank.begin(), options_.rank.end()); }

    template <typename T>
    T* reserve(DeviceBuffer& buffer, std::size_t count) {
        return buffer.reserve(device_, count * sizeof(T)) ? buffer.as<T>() : nullptr;
    }

    bool make_weights() {
        const DeviceBenchOptions& o = options_;
        bool enough = full_.make(device_, cold_bytes(), o.vocab, o.hidden, 1) &&
                      trimmed_.make(device_, cold_bytes(), o.trimmed, o.hidden, 101) &&
                      stream_.reserve(device_, stream_bytes()) && reserve<float>(sink_, 1) != nullptr;
        for (const int rank : o.rank) {
            LowRank& made = pairs_.emplace_back();
            made.rank = rank;
            enough = enough && made.down.make(device_, cold_bytes(), rank, o.hidden, 201) &&
                     made.up.make(device_, cold_bytes(), o.vocab, rank, 301);
        }
        const double row_bytes = padded_columns(o.hidden) * 2.0;
        for (const int count : o.gather) {
            Gathered& made = gathered_.emplace_back();
            made.count = count;
            enough = enough && made.packed.make(device_, cold_bytes(), count, o.hidden, 401) &&
                     made.random.make(device_, cold_bytes(), count, o.vocab, row_bytes, true) &&
                     made.neighbours.make(device_, cold_bytes(), count, o.vocab, row_bytes, false);
        }
        // Random values: reading zeros would take less power.
        if (enough)
            cuda::launch_fill_normal(stream_.as<half_t>(), stream_bytes() / sizeof(half_t), 1.0f, 601,
                                     device_.stream());
        return enough;
    }

    Status make_rows(int rows) {
        const DeviceBenchOptions& o = options_;
        const auto m = static_cast<std::size_t>(rows);
        const auto v = static_cast<std::size_t>(o.vocab);
        const auto own = static_cast<std::size_t>(std::max(o.buckets * o.per_bucket, max_gather()));
        const auto rank = static_cast<std::size_t>(max_rank());
        std::size_t router_bytes = 1;
        for (const int count : o.gather)
            if (can_route(o.vocab, count))
                router_bytes = std::max(router_bytes, router_scratch_bytes(rows, o.vocab, count));
        const std::size_t x_values = m * static_cast<std::size_t>(padded_columns(o.hidden));
        const bool enough =
            reserve<half_t>(x_, x_values) && reserve<half_t>(correlated_, x_values) &&
            reserve<float>(y_, m * v) && reserve<float>(narrow_, m * rank) &&
            reserve<half_t>(narrow_half_, m * static_cast<std::size_t>(padded_columns(max_rank()))) &&
            reserve<std::int32_t>(ids_, m * max_topk) && reserve<float>(values_, m * max_topk) &&
            reserve<float>(sums_, m) && router_.reserve(device_, router_bytes) &&
            select_.reserve(device_, std::max(topk_scratch_bytes(rows, o.vocab, o.k),
                                              matmul_topk_scratch_bytes(rows, o.vocab, o.k))) &&
            reserve<std::int32_t>(own_, m * own) && reserve<std::uint32_t>(bitmap_, v / 32 + 1) &&
            reserve<std::int32_t>(tokens_, std::min(m * own, v)) && reserve<std::int32_t>(columns_, v) &&
            reserve<std::int32_t>(size_, 1);
        if (!enough) return failed("{}: not enough memory for {} rows", device_.info().name, rows);
        cuda::launch_fill_normal(x_.as<half_t>(), x_values, 1.0f, 7, device_.stream());
        upload_correlated(x_values / m, m);
        return device_.synchronize();
    }

    void upload_correlated(std::size_t width, std::size_t rows) {
        Rng rng(13);
        std::vector<double> common(width);
        for (double& value : common) value = std::sqrt(row_correlation) * rng.normal();
        std::vector<half_t> values;
        for (std::size_t m = 0; m < rows; ++m)
            for (const double value : common)
                values.push_back(
                    to_bf16(static_cast<float>(value + std::sqrt(1 - row_correlation) * rng.normal())));
        device_.upload(correlated_.as<void>(), values.data(), values.size() * sizeof(half_t));
    }

    /// Queued reads keep the clocks up during the query.
    std::string clocks_under_load() {
        const std::size_t bytes = std::min(stream_bytes(), std::size_t{1} << 30);
        for (int i = 0; i < options_.clock_reads; ++i)
            cuda::launch_read(stream_.as<void>(), bytes, cuda::Reads::evict_first, sink_.as<float>(),
                              device_.stream());
        std::string said = clocks_now();
        (void)device_.synchronize();
        return said;
    }

    /// Products of many rows, by our kernels and by the library.
    Status products(DeviceBenchReport& report) {
        const int d = options_.hidden, n = 4 * d;
        const int max_outputs = *std::max_element(options_.product_rows.begin(), options_.product_rows.end());
        const auto cells = static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(n);
        const auto values =
            static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(padded_columns(d));
        Copies weights;
        DeviceBuffer x, y;
        if (!weights.make(device_, cold_bytes(), n, d, 501) || !x.reserve(device_, values * sizeof(half_t)) ||
            !y.reserve(device_, cells * sizeof(float)))
            return failed("{}: not enough memory for products of {} rows", device_.info().name, max_outputs);
        cuda::launch_fill_normal(x.as<half_t>(), values, 1.0f, 9, device_.stream());
        const Status found = device_.use_cublaslt(1);
        report.library = device_.stats().library;
        library_found_ = found.ok();
        if (!found.ok()) report.why_no_library = found.error().message;
        bool wins = true;
        for (std::size_t i = options_.product_rows.size(); i-- > 0;) {
            const int rows = options_.product_rows[i];
            double us[2] = {0, 0};
            for (const int from : {0, 1}) {
                if (from == 1 && !found.ok()) break;
                DS_TRY(device_.use_cublaslt(from));
                measure(fmt::format("product {} x {}{}", n, d, from == 0 ? "" : " by cuBLASLt"), "cold", rows,
                        weights.bytes(), [&](int call, bool warm) {
                            product(weights.at(call, warm), x.as<half_t>(), y.as<float>(), rows);
                        });
                results_.back().flops = 2.0 * n * d * rows;
                us[from] = results_.back().median_us;
            }
            wins = wins && us[1] > 0 && us[1] < us[0];
            if (wins) report.library_wins_from = rows;
        }
        return device_.use_cublaslt(0);
    }

    /// Calls in one graph. Without a call it has only what happens between calls.
    struct Graph {
        std::uint64_t key;
        const Call* call;
        std::vector<double> us{};  ///< per call, of each replay
    };
    /// Enqueues a graph's work and appends its device time per call; returns false on an error.
    bool replay(Graph& graph, const CallMode& way) {
        DeviceTimer& timer = *device_.timer();
        const auto layer = static_cast<std::size_t>(options_.layer_mb * 1e6) / 256 * 256;
        const auto work = [&] {
            for (int i = 0; i < options_.calls; ++i) {
                if (way.between) {
                    const std::size_t at = static_cast<std::size_t>(i) % 4 * layer;
                    cuda::launch_read(stream_.as<std::byte>() + std::min(at, stream_.bytes() - layer), layer,
                                      *way.between, sink_.as<float>(), device_.stream());
                }
                if (graph.call != nullptr) (*graph.call)(i, way.same);
            }
        };
        timer.reset();
        const std::uint32_t from = timer.mark();
        device_.graph(graph.key, work);
        const std::uint32_t to = timer.mark();
        if (!device_.synchronize().ok()) return false;
        graph.us.push_back(static_cast<double>(timer.elapsed_ns(from, to)) * 1e-3 / options_.calls);
        return true;
    }

    /// Times a call. With work between calls, graphs with and without the call alternate, and the time is the
    /// median of their differences: the medians of two long times would differ by more than a short call.
    void time(const Call& call, const CallMode& way, DeviceMeasured& result) {
        constexpr std::ptrdiff_t first = 3;  // the graph is captured, and its kernels are loaded
        Graph with{device_.new_graph_key(), &call}, without{device_.new_graph_key(), nullptr};
        for (std::ptrdiff_t turn = 0; turn < first + options_.replays; ++turn)
            if (!replay(with, way) || (way.between && !replay(without, way))) return;
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

    void measure(const std::string& op, const std::string& mode, int rows, double bytes, const Call& call) {
        measure(op, call_mode(mode), rows, bytes, call);
    }
    void measure(const std::string& op, const CallMode& way, int rows, double bytes, const Call& call) {
        DeviceMeasured result;
        time(call, way, result);
        result.op = op;
        result.mode = way.mode;
        result.rows = rows;
        result.bytes = bytes;
        // Relative to the faster of the two variants of the full head.
        for (const DeviceMeasured& other : results_)
            if (other.op.starts_with(full_name) && other.mode == way.mode && other.rows == rows)
                result.nu = std::max(result.nu, result.median_us / other.median_us);
        results_.push_back(std::move(result));
    }

    void memory(DeviceBenchReport& report) {
        for (const double mb : {25.0, 50.0, 100.0, 200.0, 400.0, 1000.0, 4000.0}) {
            const auto bytes = static_cast<std::size_t>(mb * 1e6) / 256 * 256;
            if (bytes > stream_bytes()) break;
            measure(fmt::format("read {:.0f} MB", mb), "warm", 0, static_cast<double>(bytes), [&](int, bool) {
                cuda::launch_read(stream_.as<void>(), bytes, cuda::Reads::plain, sink_.as<float>(),
                                  device_.stream());
            });
        }
        const std::size_t part = stream_bytes() / 4;
        measure(fmt::format("copy {:.0f} MB", static_cast<double>(part) / 1e6), "warm", 0,
                2.0 * static_cast<double>(part), [&](int, bool) {
                    device_.copy(stream_.as<std::byte>() + 2 * part, stream_.as<void>(), part);
                });
        report.copy_gb_per_s = results_.back().gb_per_s();
        measure("empty kernel", "warm", 0, 0, [&](int, bool) { cuda::launch_empty(device_.stream()); });
        report.largest_cluster = cuda::largest_cluster();
        if (report.largest_cluster == 0) return;  // a GPU without clusters has no programmatic launch, either
        measure("empty kernel, started early", "warm", 0, 0,
                [&](int, bool) { cuda::launch_early(device_.stream()); });
    }

    void drop_window() {
        (void)device_.synchronize();
        const cudaStreamAttrValue none{};
        (void)cudaStreamSetAttribute(device_.stream(), cudaStreamAttributeAccessPolicyWindow, &none);
        (void)cudaCtxResetPersistingL2Cache();
    }

    /// How much of a head's weights stays in L2 while a draft layer's weights are streamed. Compares
    /// evict-first reads with plain ones, and with an access-policy window on the head's weights. For the
    /// low-rank pair the window covers the first factor, because the second is larger than L2. Only for the
    /// first size and rank of a list.
    void residency(int rows) {
        const auto each = [&](const std::string& op, const Copies& held, double bytes, const Call& call) {
            for (const CallMode& way : kept_modes) {
                if (way.window &&
                    !device_.set_l2_persisting(held.at(0, true).data, static_cast<std::size_t>(held.bytes())))
                    break;
                measure(op, way, rows, bytes, call);
            }
        };
        const Gathered& gathered = gathered_.front();
        each(fmt::format("packed head {} in one pass", gathered.count), gathered.packed,
             gathered.packed.bytes(),
             [&](int call, bool warm) { one_pass(gathered.packed.at(call, warm), x_.as<half_t>(), rows); });
        drop_window();
        const LowRank& pair = pairs_.front();
        each(fmt::format("low-rank head r={} in one pass", pair.rank), pair.down, pair.bytes(),
             [&](int call, bool warm) {
                 narrow(pair, call, warm, rows);
                 one_pass(pair.up.at(call, warm), narrow_half_.as<half_t>(), rows);
             });
        drop_window();
    }

    void product(const DeviceMatrix& weights, Activations x, float* y, int rows) {
        MatmulOp op;
        op.weights = weights;
        op.x = x;
        op.rows = rows;
        op.y = y;
        op.y_stride = weights.n;
        device_.matmul(op);
    }
    void best(int rows, int support) {
        TopKOp op;
        op.logits = y_.as<float>();
        op.stride = support;
        op.rows = rows;
        op.support = support;
        op.k = options_.k;
        op.ids = ids_.as<std::int32_t>();
        op.values = values_.as<float>();
        op.logsumexp = sums_.as<float>();
        op.scratch = select_.as<void>();
        device_.topk(op);
    }
    /// Product and selection in one pass.
    void one_pass(const DeviceMatrix& weights, Activations x, int rows) {
        device_.matmul_topk({weights, x, rows, weights.n, options_.k, nullptr, ids_.as<std::int32_t>(),
                             values_.as<float>(), sums_.as<float>(), select_.as<void>()});
    }
    void narrow(const LowRank& pair, int call, bool warm, int rows) {
        const int r = pair.rank, stride = padded_columns(r);
        product(pair.down.at(call, warm), input_->as<half_t>(), narrow_.as<float>(), rows);
        device_.cast({narrow_.as<float>(), r, rows, r, narrow_half_.as<half_t>(), stride, stride});
    }
    void low_rank(const LowRank& pair, int call, bool warm, int rows) {
        narrow(pair, call, warm, rows);
        product(pair.up.at(call, warm), narrow_half_.as<half_t>(), y_.as<float>(), rows);
    }
    void striped(int rows) {
        device_.bucket_top_m({y_.as<float>(), options_.vocab, rows, options_.vocab, options_.buckets,
                              options_.per_bucket, own_.as<std::int32_t>()});
    }
    /// Computes the outputs in `list` of the full head; the entry before the list is their number.
    void indexed(int call, bool warm, int rows, const std::int32_t* list, const std::int32_t* count,
                 int max_outputs) {
        MatmulOp op;
        op.weights = full_.at(call, warm);
        op.x = input_->as<half_t>();
        op.rows = rows;
        op.y = y_.as<float>();
        op.y_stride = max_outputs;
        op.chosen = list;
        op.chosen_count = count;
        op.max_chosen = max_outputs;
        device_.matmul(op);
    }
    /// Routes by the two factors to the exact best `count` tokens of each row, in one pass.
    void route(const LowRank& pair, int count, int call, bool warm, int rows) {
        narrow(pair, call, warm, rows);
        device_.matmul_topk_set({pair.up.at(call, warm), narrow_half_.as<half_t>(), rows, count,
                                 own_.as<std::int32_t>(), router_.as<void>()});
    }
    /// Number of rows that the latest spec_vocab() read.
    double union_size() {
        std::int32_t rows = 0;
        device_.download(&rows, size_.as<void>(), sizeof rows);
        return device_.synchronize().ok() ? rows : 0;
    }
    /// SpecVocab's call with shortlists of `count` tokens; 0 = by the cheaper bucketed selection.
    void spec_vocab(const LowRank& pair, int count, int call, bool warm, int rows) {
        const int own = count > 0 ? count : options_.buckets * options_.per_bucket;
        const int max_outputs = std::min(rows * own, options_.vocab);
        if (count > 0) {
            route(pair, count, call, warm, rows);
        } else {
            low_rank(pair, call, warm, rows);
            striped(rows);
        }
        device_.list_unique_tokens({own_.as<std::int32_t>(), std::int64_t{rows} * own, options_.vocab,
                                    bitmap_.as<std::uint32_t>(), tokens_.as<std::int32_t>(),
                                    columns_.as<std::int32_t>(), size_.as<std::int32_t>()});
        indexed(call, warm, rows, tokens_.as<std::int32_t>(), size_.as<std::int32_t>(), max_outputs);
        TopKOp op;
        op.logits = y_.as<float>();
        op.stride = max_outputs;
        op.rows = rows;
        op.support = own;
        op.k = options_.k;
        op.ids = ids_.as<std::int32_t>();
        op.values = values_.as<float>();
        op.logsumexp = sums_.as<float>();
        op.scratch = select_.as<void>();
        op.own = own_.as<std::int32_t>();
        op.own_stride = own;
        op.columns = columns_.as<std::int32_t>();
        device_.topk(op);
    }

    void heads(int rows, const std::string& mode) {
        const DeviceBenchOptions& o = options_;
        measure(fmt::format("{}+ top-k", full_name), mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
            best(rows, o.vocab);
        });
        measure(fmt::format("{}in one pass", full_name), mode, rows, full_.bytes(),
                [&](int call, bool warm) { one_pass(full_.at(call, warm), x_.as<half_t>(), rows); });
        measure("logits of the full head alone", mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
        });
        measure(fmt::format("static head {} in one pass", o.trimmed), mode, rows, trimmed_.bytes(),
                [&](int call, bool warm) { one_pass(trimmed_.at(call, warm), x_.as<half_t>(), rows); });
        measure(fmt::format("static head {} + top-k", o.trimmed), mode, rows, trimmed_.bytes(),
                [&](int call, bool warm) {
                    product(trimmed_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
                    best(rows, o.trimmed);
                });
        for (const LowRank& pair : pairs_) {
            low_rank_heads(pair, rows, mode);
            for (const int count : o.gather) routed_heads(pair, count, rows, mode);
        }
        for (const Gathered& one : gathered_) gathered_heads(one, rows, mode);
        by_library(rows, mode);
    }
    void low_rank_heads(const LowRank& pair, int rows, const std::string& mode) {
        const DeviceBenchOptions& o = options_;
        measure(fmt::format("low-rank head r={} in one pass", pair.rank), mode, rows, pair.bytes(),
                [&](int call, bool warm) {
                    narrow(pair, call, warm, rows);
                    one_pass(pair.up.at(call, warm), narrow_half_.as<half_t>(), rows);
                });
        measure(fmt::format("low-rank head r={} + top-k", pair.rank), mode, rows, pair.bytes(),
                [&](int call, bool warm) {
                    low_rank(pair, call, warm, rows);
                    best(rows, o.vocab);
                });
        measure(fmt::format("router r={}", pair.rank), mode, rows, pair.bytes(),
                [&](int call, bool warm) { low_rank(pair, call, warm, rows); });
        measure(fmt::format("router r={} + bucketed top-m {}x{}", pair.rank, o.buckets, o.per_bucket), mode,
                rows, pair.bytes(), [&](int call, bool warm) {
                    low_rank(pair, call, warm, rows);
                    striped(rows);
                });
        spec_vocab_heads(pair, 0, rows, mode);
    }
    /// The heads that select `count` tokens by the low-rank scores.
    void routed_heads(const LowRank& pair, int count, int rows, const std::string& mode) {
        const DeviceBenchOptions& o = options_;
        measure(
            fmt::format("router r={} + exact top {}", pair.rank, count), mode, rows, pair.bytes(),
            [&](int call, bool warm) {
                low_rank(pair, call, warm, rows);
                device_.topk_set({y_.as<float>(), o.vocab, rows, o.vocab, count, own_.as<std::int32_t>()});
            });
        if (!can_route(o.vocab, count)) {
            not_timed(fmt::format("router and specvocab with top {}: of V {} the fused router selects fewer",
                                  count, o.vocab));
            return;
        }
        measure(fmt::format("router r={} with top {} in one pass", pair.rank, count), mode, rows,
                pair.bytes(), [&](int call, bool warm) { route(pair, count, call, warm, rows); });
        spec_vocab_heads(pair, count, rows, mode);
    }
    /// Whole SpecVocab calls; `count` as in spec_vocab().
    void spec_vocab_heads(const LowRank& pair, int count, int rows, const std::string& mode) {
        const double row = padded_columns(options_.hidden) * 2.0;
        const std::string sets = count > 0 ? fmt::format("top {}", count) : std::string("bucketed sets");
        // Uncorrelated rows give the largest union.
        for (const DeviceBuffer* input : {&correlated_, &x_}) {
            if (input == &x_ && rows == 1) break;
            input_ = input;
            measure(fmt::format("specvocab r={} {}{}", pair.rank, sets,
                                input == &x_ ? ", uncorrelated rows" : ""),
                    mode, rows, pair.bytes(),
                    [&](int call, bool warm) { spec_vocab(pair, count, call, warm, rows); });
            results_.back().bytes = pair.bytes() + union_size() * row;
        }
        input_ = &x_;
    }
    void gathered_heads(const Gathered& one, int rows, const std::string& mode) {
        const double bytes = one.packed.bytes();
        const int count = one.count;
        measure(fmt::format("packed head {} in one pass", count), mode, rows, bytes,
                [&](int call, bool warm) { one_pass(one.packed.at(call, warm), x_.as<half_t>(), rows); });
        measure(fmt::format("packed head {} + top-k", count), mode, rows, bytes, [&](int call, bool warm) {
            product(one.packed.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
            best(rows, count);
        });
        measure(fmt::format("indexed rows {}", count), mode, rows, bytes, [&](int call, bool warm) {
            const std::int32_t* list = one.random.at(call, warm);
            indexed(call, warm, rows, list, list - 1, count);
        });
        measure(fmt::format("contiguous rows {}", count), mode, rows, bytes, [&](int call, bool warm) {
            const std::int32_t* list = one.neighbours.at(call, warm);
            indexed(call, warm, rows, list, list - 1, count);
        });
        const auto gather = [&](int call, bool warm) {
            const DeviceMatrix to = one.packed.at(call, warm);
            device_.gather(
                {full_.at(call, warm), one.random.at(call, warm), count, const_cast<half_t*>(to.data)});
            return to;
        };
        measure(fmt::format("gather {} rows", count), mode, rows, 2 * bytes, gather);
        // An indexed product saves this copy.
        measure(
            fmt::format("gather and product of {} rows", count), mode, rows, 3 * bytes,
            [&](int call, bool warm) { product(gather(call, warm), x_.as<half_t>(), y_.as<float>(), rows); });
    }
    /// Notes, once, what a size rules out.
    void not_timed(std::string line) {
        if (std::find(not_timed_.begin(), not_timed_.end(), line) == not_timed_.end())
            not_timed_.push_back(std::move(line));
    }
    /// The heads' full products by the library.
    void by_library(int rows, const std::string& mode) {
        if (!library_found_ || !device_.use_cublaslt(1).ok()) return;
        measure("cuBLASLt: logits of the full head", mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
        });
        for (const LowRank& pair : pairs_)
            measure(fmt::format("cuBLASLt: router r={}", pair.rank), mode, rows, pair.bytes(),
                    [&](int call, bool warm) { low_rank(pair, call, warm, rows); });
        (void)device_.use_cublaslt(0);
    }

    static constexpr const char* full_name = "full head ";
    const DeviceBenchOptions& options_;
    CudaBackend& device_;
    Copies full_, trimmed_;
    std::vector<LowRank> pairs_;      ///< by rank
    std::vector<Gathered> gathered_;  ///< by number of rows
    DeviceBuffer stream_, sink_, x_, y_, narrow_, narrow_half_, ids_, values_, sums_, select_, own_, router_,
        bitmap_, tokens_, columns_, size_;
    DeviceBuffer correlated_;
    const DeviceBuffer* input_ = &x_;  ///< input of the heads with per-row shortlists
    bool library_found_ = false;
    std::vector<DeviceMeasured> results_;
    std::vector<std::string> not_timed_;
};

}  // namespace

Result<DeviceBenchReport> bench_cuda(const DeviceBenchOptions& options) {
    CudaOptions cuda_options;
    cuda_options.cache_windows = true;  // no window is set before residency()
    DS_ASSIGN(const auto device, open_cuda_device(cuda_options));
    DeviceBenchReport report;
    report.device = device->info();
    DS_TRY(Bench(options, *device).run(report));
    return report;
}

}  // namespace draftscope::kernels
