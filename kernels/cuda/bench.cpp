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
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/device_bench.h"

namespace draftscope::kernels {
namespace {

constexpr int max_copies = 64;
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

/// Copies of one matrix of random weights.
class Copies {
  public:
    bool make(CudaBackend& device, double cold_bytes, int n, int k, std::uint64_t seed) {
        n_ = n;
        k_ = k;
        const auto values = static_cast<std::size_t>(n) * static_cast<std::size_t>(padded_columns(k));
        bytes_ = static_cast<double>(values) * sizeof(half_t);
        const int wanted = static_cast<int>(std::clamp(cold_bytes / bytes_ + 1, 1.0, 1.0 * max_copies));
        for (int i = 0; i < wanted; ++i) {
            DeviceBuffer buffer;
            if (!buffer.reserve(device, values * sizeof(half_t))) return false;
            cuda::launch_fill_normal(buffer.as<half_t>(), values, 0.02f, seed + static_cast<std::uint64_t>(i),
                                     device.stream());
            buffers_.push_back(std::move(buffer));
        }
        return true;
    }
    /// The copy for call number `call`; always the first if `warm`.
    DeviceMatrix at(int call, bool warm) const {
        const auto i = warm ? 0 : static_cast<std::size_t>(call) % buffers_.size();
        return {buffers_[i].as<half_t>(), n_, k_, padded_columns(k_)};
    }
    double bytes() const { return bytes_; }

  private:
    std::vector<DeviceBuffer> buffers_;
    int n_ = 0, k_ = 0;
    double bytes_ = 0;
};

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
        return device_.synchronize();
    }

  private:
    using Call = std::function<void(int call, bool warm)>;

    double cold_bytes() const { return options_.cold_mb * 1e6; }
    std::size_t stream_bytes() const {
        return static_cast<std::size_t>(options_.stream_mb * 1e6) / 1024 * 1024;
    }
    int indexed_rows() const { return std::min(2048, options_.gather); }
    /// Number of row lists of the full head, so that L2 holds no rows of the previous calls.
    int lists() const {
        const double bytes = indexed_rows() * padded_columns(options_.hidden) * 2.0;
        return static_cast<int>(std::clamp(cold_bytes() / bytes + 1, 1.0, 1.0 * max_copies));
    }
    /// The list for call number `call`; the entry before it holds the number of rows.
    const std::int32_t* list_at(const DeviceBuffer& all, int call, bool warm) const {
        return all.as<std::int32_t>() + (warm ? 0 : call % lists()) * (options_.gather + 1) + 1;
    }

    template <typename T>
    T* reserve(DeviceBuffer& buffer, std::size_t count) {
        return buffer.reserve(device_, count * sizeof(T)) ? buffer.as<T>() : nullptr;
    }

    bool make_weights() {
        const DeviceBenchOptions& o = options_;
        const bool enough = full_.make(device_, cold_bytes(), o.vocab, o.hidden, 1) &&
                            trimmed_.make(device_, cold_bytes(), o.trimmed, o.hidden, 101) &&
                            down_.make(device_, cold_bytes(), o.rank, o.hidden, 201) &&
                            up_.make(device_, cold_bytes(), o.vocab, o.rank, 301) &&
                            packed_.make(device_, cold_bytes(), o.gather, o.hidden, 401) &&
                            stream_.reserve(device_, stream_bytes()) && reserve<float>(sink_, 1) != nullptr;
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
        const auto own = static_cast<std::size_t>(o.buckets) * static_cast<std::size_t>(o.per_bucket);
        const std::size_t x_values = m * static_cast<std::size_t>(padded_columns(o.hidden));
        const std::size_t listed_rows =
            static_cast<std::size_t>(lists()) * (static_cast<std::size_t>(o.gather) + 1);
        const bool enough =
            reserve<half_t>(x_, x_values) && reserve<half_t>(correlated_, x_values) &&
            reserve<float>(y_, m * v) && reserve<float>(narrow_, m * static_cast<std::size_t>(o.rank)) &&
            reserve<half_t>(narrow_half_, m * static_cast<std::size_t>(padded_columns(o.rank))) &&
            reserve<std::int32_t>(ids_, m * max_topk) && reserve<float>(values_, m * max_topk) &&
            reserve<float>(sums_, m) &&
            router_.reserve(device_, router_scratch_bytes(rows, o.vocab, listed())) &&
            select_.reserve(device_, std::max(topk_scratch_bytes(rows, o.vocab, o.k),
                                              matmul_topk_scratch_bytes(rows, o.vocab, o.k))) &&
            reserve<std::int32_t>(own_, m * std::max<std::size_t>(own, 4096)) &&
            reserve<std::uint32_t>(bitmap_, v / 32 + 1) &&
            reserve<std::int32_t>(tokens_, std::min(m * own, v)) && reserve<std::int32_t>(columns_, v) &&
            reserve<std::int32_t>(size_, 1) && reserve<std::int32_t>(random_, listed_rows) &&
            reserve<std::int32_t>(neighbours_, listed_rows);
        if (!enough) return failed("{}: not enough memory for {} rows", device_.info().name, rows);
        cuda::launch_fill_normal(x_.as<half_t>(), x_values, 1.0f, 7, device_.stream());
        upload_correlated(x_values / m, m);
        std::vector<std::int32_t> random, neighbours;
        Rng rng(11);
        for (int l = 0; l < lists(); ++l) {
            random.push_back(indexed_rows());
            neighbours.push_back(indexed_rows());
            const auto first = static_cast<std::ptrdiff_t>(random.size());
            const int begin = static_cast<int>(std::int64_t{l} * (o.vocab - o.gather) / lists());
            for (int i = 0; i < o.gather; ++i) {
                random.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(o.vocab))));
                neighbours.push_back(begin + i);
            }
            std::sort(random.begin() + first, random.end());
        }
        device_.upload(random_.as<void>(), random.data(), listed_rows * sizeof(std::int32_t));
        device_.upload(neighbours_.as<void>(), neighbours.data(), listed_rows * sizeof(std::int32_t));
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

    /// Returns the device time per call of a graph of `calls` calls, in us: median, best.
    std::pair<double, double> time(const Call& call, const CallMode& way) {
        DeviceTimer& timer = *device_.timer();
        const std::uint64_t key = device_.new_graph_key();
        const auto layer = static_cast<std::size_t>(options_.layer_mb * 1e6) / 256 * 256;
        const auto work = [&] {
            for (int i = 0; i < options_.calls; ++i) {
                if (way.between) {
                    const std::size_t at = static_cast<std::size_t>(i) % 4 * layer;
                    cuda::launch_read(stream_.as<std::byte>() + std::min(at, stream_.bytes() - layer), layer,
                                      *way.between, sink_.as<float>(), device_.stream());
                }
                if (call) call(i, way.same);
            }
        };
        std::vector<double> times;
        for (int turn = 0; turn < options_.replays + 3; ++turn) {
            timer.reset();
            const std::uint32_t from = timer.mark();
            device_.graph(key, work);
            const std::uint32_t to = timer.mark();
            if (!device_.synchronize().ok()) return {0, 0};
            if (turn >= 3)
                times.push_back(static_cast<double>(timer.elapsed_ns(from, to)) * 1e-3 / options_.calls);
        }
        std::sort(times.begin(), times.end());
        return {times[times.size() / 2], times.front()};
    }

    void measure(const std::string& op, const std::string& mode, int rows, double bytes, const Call& call) {
        measure(op, call_mode(mode), rows, bytes, call);
    }
    void measure(const std::string& op, const CallMode& way, int rows, double bytes, const Call& call) {
        auto [median, best] = time(call, way);
        if (way.between) {
            std::pair<double, double>& alone = layer_us_[*way.between == cuda::Reads::plain ? 0 : 1];
            if (alone.first == 0) alone = time({}, {"", false, way.between});
            median -= alone.first;
            best -= alone.second;
        }
        DeviceMeasured result;
        result.op = op;
        result.mode = way.mode;
        result.rows = rows;
        result.median_us = median;
        result.best_us = best;
        result.bytes = bytes;
        for (const auto& [prefix, peer] : peers)
            if (way.mode == "cold" && op.starts_with(prefix)) result.torch = peer;
        // Relative to the faster of the two variants of the full head.
        for (const DeviceMeasured& other : results_)
            if (other.op.starts_with(full_name) && other.mode == way.mode && other.rows == rows)
                result.nu = std::max(result.nu, median / other.median_us);
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
    /// low-rank pair the window covers the first factor, because the second is larger than L2.
    void residency(int rows) {
        const auto each = [&](const std::string& op, const Copies& held, double bytes, const Call& call) {
            for (const CallMode& way : kept_modes) {
                if (way.window &&
                    !device_.set_l2_persisting(held.at(0, true).data, static_cast<std::size_t>(held.bytes())))
                    break;
                measure(op, way, rows, bytes, call);
            }
        };
        each(fmt::format("packed head {} in one pass", options_.gather), packed_, packed_.bytes(),
             [&](int call, bool warm) { one_pass(packed_.at(call, warm), x_.as<half_t>(), rows); });
        drop_window();
        each(fmt::format("low-rank head r={} in one pass", options_.rank), down_, down_.bytes() + up_.bytes(),
             [&](int call, bool warm) {
                 narrow(call, warm, rows);
                 one_pass(up_.at(call, warm), narrow_half_.as<half_t>(), rows);
             });
        drop_window();
    }

    void product(const DeviceMatrix& weights, const half_t* x, float* y, int rows) {
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
    void one_pass(const DeviceMatrix& weights, const half_t* x, int rows) {
        device_.matmul_topk({weights, x, rows, weights.n, options_.k, nullptr, ids_.as<std::int32_t>(),
                             values_.as<float>(), sums_.as<float>(), select_.as<void>()});
    }
    void narrow(int call, bool warm, int rows) {
        const int r = options_.rank, stride = padded_columns(r);
        product(down_.at(call, warm), input_->as<half_t>(), narrow_.as<float>(), rows);
        device_.cast({narrow_.as<float>(), r, rows, r, narrow_half_.as<half_t>(), stride, stride});
    }
    void low_rank(int call, bool warm, int rows) {
        narrow(call, warm, rows);
        product(up_.at(call, warm), narrow_half_.as<half_t>(), y_.as<float>(), rows);
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
    /// Routes by the two factors to the exact best `listed()` tokens of each row, in one pass.
    void route(int call, bool warm, int rows) {
        narrow(call, warm, rows);
        device_.matmul_topk_set({up_.at(call, warm), narrow_half_.as<half_t>(), rows, listed(),
                                 own_.as<std::int32_t>(), router_.as<void>()});
    }
    int listed() const { return std::min(2048, options_.vocab); }
    /// Number of rows that the latest spec_vocab() read.
    double union_size() {
        std::int32_t rows = 0;
        device_.download(&rows, size_.as<void>(), sizeof rows);
        return device_.synchronize().ok() ? rows : 0;
    }
    /// SpecVocab's call, optionally with the cheaper bucketed selection.
    void spec_vocab(int call, bool warm, int rows, bool stripes) {
        const int own = stripes ? options_.buckets * options_.per_bucket : listed();
        const int max_outputs = std::min(rows * own, options_.vocab);
        if (stripes) {
            low_rank(call, warm, rows);
            striped(rows);
        } else {
            route(call, warm, rows);
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
        const double row = padded_columns(o.hidden) * 2.0, pair = down_.bytes() + up_.bytes();
        const double own = o.buckets * o.per_bucket * row;
        measure(fmt::format("{}+ top-k", full_name), mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
            best(rows, o.vocab);
        });
        measure(fmt::format("{}in one pass", full_name), mode, rows, full_.bytes(),
                [&](int call, bool warm) { one_pass(full_.at(call, warm), x_.as<half_t>(), rows); });
        measure(fmt::format("static head {} in one pass", o.trimmed), mode, rows, trimmed_.bytes(),
                [&](int call, bool warm) { one_pass(trimmed_.at(call, warm), x_.as<half_t>(), rows); });
        measure(fmt::format("low-rank head r={} in one pass", o.rank), mode, rows, pair,
                [&](int call, bool warm) {
                    narrow(call, warm, rows);
                    one_pass(up_.at(call, warm), narrow_half_.as<half_t>(), rows);
                });
        measure(fmt::format("packed head {} in one pass", o.gather), mode, rows, packed_.bytes(),
                [&](int call, bool warm) { one_pass(packed_.at(call, warm), x_.as<half_t>(), rows); });
        measure("logits of the full head alone", mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
        });
        measure(fmt::format("static head {} + top-k", o.trimmed), mode, rows, trimmed_.bytes(),
                [&](int call, bool warm) {
                    product(trimmed_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
                    best(rows, o.trimmed);
                });
        measure(fmt::format("low-rank head r={} + top-k", o.rank), mode, rows, pair,
                [&](int call, bool warm) {
                    low_rank(call, warm, rows);
                    best(rows, o.vocab);
                });
        measure(fmt::format("router r={}", o.rank), mode, rows, pair,
                [&](int call, bool warm) { low_rank(call, warm, rows); });
        measure(fmt::format("router + bucketed top-m {}x{}", o.buckets, o.per_bucket), mode, rows, pair,
                [&](int call, bool warm) {
                    low_rank(call, warm, rows);
                    striped(rows);
                });
        const int exact = listed();
        measure(fmt::format("router with top {} in one pass", exact), mode, rows, pair,
                [&](int call, bool warm) { route(call, warm, rows); });
        measure(fmt::format("router + exact top {}", exact), mode, rows, pair, [&](int call, bool warm) {
            low_rank(call, warm, rows);
            device_.topk_set({y_.as<float>(), o.vocab, rows, o.vocab, exact, own_.as<std::int32_t>()});
        });
        // Uncorrelated rows give the largest union.
        for (const DeviceBuffer* input : {&correlated_, &x_}) {
            if (input == &x_ && rows == 1) break;
            input_ = input;
            const char* which = input == &x_ ? ", uncorrelated rows" : "";
            measure(fmt::format("specvocab, complete{}", which), mode, rows, pair + exact * row,
                    [&](int call, bool warm) { spec_vocab(call, warm, rows, false); });
            results_.back().bytes = pair + union_size() * row;
            measure(fmt::format("specvocab with bucketed sets{}", which), mode, rows, pair + own,
                    [&](int call, bool warm) { spec_vocab(call, warm, rows, true); });
            results_.back().bytes = pair + union_size() * row;
        }
        input_ = &x_;
        const int chosen = indexed_rows();
        measure(fmt::format("indexed rows {}", chosen), mode, rows, chosen * row, [&](int call, bool warm) {
            const std::int32_t* list = list_at(random_, call, warm);
            indexed(call, warm, rows, list, list - 1, chosen);
        });
        measure(fmt::format("contiguous rows {}", chosen), mode, rows, chosen * row,
                [&](int call, bool warm) {
                    const std::int32_t* list = list_at(neighbours_, call, warm);
                    indexed(call, warm, rows, list, list - 1, chosen);
                });
        measure(fmt::format("gather {} rows", o.gather), mode, rows, 2 * packed_.bytes(),
                [&](int call, bool warm) {
                    const DeviceMatrix to = packed_.at(call, warm);
                    device_.gather({full_.at(call, warm), list_at(random_, call, warm), o.gather,
                                    const_cast<half_t*>(to.data)});
                });
        // An indexed product saves this copy.
        measure(fmt::format("gather and product of {} rows", o.gather), mode, rows, 3 * packed_.bytes(),
                [&](int call, bool warm) {
                    const DeviceMatrix to = packed_.at(call, warm);
                    device_.gather({full_.at(call, warm), list_at(random_, call, warm), o.gather,
                                    const_cast<half_t*>(to.data)});
                    product(to, x_.as<half_t>(), y_.as<float>(), rows);
                });
        measure(fmt::format("packed head {} + top-k", o.gather), mode, rows, packed_.bytes(),
                [&](int call, bool warm) {
                    product(packed_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
                    best(rows, o.gather);
                });
        by_library(rows, mode);
    }
    /// The heads' full products by the library.
    void by_library(int rows, const std::string& mode) {
        if (!library_found_ || !device_.use_cublaslt(1).ok()) return;
        measure("cuBLASLt: logits of the full head", mode, rows, full_.bytes(), [&](int call, bool warm) {
            product(full_.at(call, warm), x_.as<half_t>(), y_.as<float>(), rows);
        });
        measure(fmt::format("cuBLASLt: router r={}", options_.rank), mode, rows, down_.bytes() + up_.bytes(),
                [&](int call, bool warm) { low_rank(call, warm, rows); });
        (void)device_.use_cublaslt(0);
    }

    static constexpr const char* full_name = "full head ";
    /// Prefixes of our op names and the name of the corresponding PyTorch benchmark, which is timed cold.
    static constexpr std::pair<std::string_view, std::string_view> peers[] = {
        {"full head ", "full head"},
        {"logits of the full head", "logits of the full head"},
        {"static head ", "static head"},
        {"low-rank head ", "low-rank head"},
        {"router with top ", "router, best listed"},
        {"router + exact top ", "router, best listed"},
        {"indexed rows ", "indexed rows"},
        {"gather and product of ", "gathered rows"},
    };

    const DeviceBenchOptions& options_;
    CudaBackend& device_;
    Copies full_, trimmed_, down_, up_, packed_;
    DeviceBuffer stream_, sink_, x_, y_, narrow_, narrow_half_, ids_, values_, sums_, select_, own_, router_,
        bitmap_, tokens_, columns_, size_, random_, neighbours_;
    DeviceBuffer correlated_;
    const DeviceBuffer* input_ = &x_;  ///< input of the heads with per-row shortlists
    bool library_found_ = false;
    std::pair<double, double> layer_us_[2]{};  ///< stream between calls alone: plain, evict-first
    std::vector<DeviceMeasured> results_;
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
