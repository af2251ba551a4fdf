#include "app/jobs/kernels/kernels_job.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/matmul/fused.h"
#include "kernels/cpu/matmul_topk.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/host_rows.h"
#include "kernels/row_major_matrix.h"
#include "profiler/machine/machine.h"

namespace draftscope {
namespace {

using kernels::Matrix;
using kernels::Precision;

std::vector<float> normal(std::size_t count, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(rng.normal());
    return values;
}

constexpr int cold_megabytes = 64;  ///< weights read by successive calls; the probe reads the same amount

/// Returns so many matrices of random values that a call finds none of its weights in L1 or L2.
std::vector<Matrix> make_copies(kernels::Backend& backend, Precision precision, int n, int k) {
    constexpr std::size_t max_copies = 16;
    std::vector<Matrix> all;
    do {
        const std::uint64_t seed = 100 + all.size();
        all.push_back(Matrix::pack(backend, precision, n, k, [&](int row, float* out) {
            Rng rng(seed, static_cast<std::uint64_t>(row));
            for (int i = 0; i < k; ++i) out[i] = static_cast<float>(rng.normal());
        }));
    } while (static_cast<double>(all.back().bytes()) * static_cast<double>(all.size()) <
                 1e6 * cold_megabytes &&
             all.size() < max_copies);
    return all;
}

/// Returns the copy that a call reads.
const Matrix& pick(const std::vector<Matrix>& all, int call) {
    return all[call % all.size()];
}

class KernelBench {
  public:
    KernelBench(const KernelSettings& options, kernels::Backend& backend, const JobHooks& hooks)
        : options_(options), backend_(backend), hooks_(hooks) {
        const std::size_t gathers = options.gather.size(), ranks = options.ranks.size();
        const std::size_t heads = 2 + 2 * gathers + ranks * (2 + gathers), layer = 3;
        const std::size_t others = 2 + 2 + gathers;
        planned_ =
            static_cast<double>(options.rows.size() * ((heads + layer) * options.precisions.size() + others) +
                                options.precisions.size() * gathers);
    }

    std::vector<KernelTime> run() {
        for (const int rows : options_.rows) {
            for (const std::string& name : options_.precisions) heads(*kernels::precision_from(name), rows);
        }
        for (const int rows : options_.rows) {
            for (const std::string& name : options_.precisions)
                measure_layer(*kernels::precision_from(name), rows);
            attention(rows, kernels::KvType::f16);
            attention(rows, kernels::KvType::f32);
        }
        for (const int rows : options_.rows) selection(rows);
        return std::move(results_);
    }

  private:
    static constexpr float norm_eps = 1e-5f;

    template <typename Call>
    void measure(const std::string& op, std::string_view precision, int rows, double bytes, Call call,
                 double scattered_probe = 0) {
        using Clock = std::chrono::steady_clock;
        if (hooks_.is_cancelled()) return;
        hooks_.report(static_cast<double>(results_.size()) / planned_,
                      fmt::format("{} {}{}", op, precision, rows > 0 ? fmt::format(" M={}", rows) : ""));
        std::vector<double> times;
        const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
        constexpr std::size_t min_calls = 5;
        call(0);
        for (int i = 1; times.size() < min_calls || Clock::now() < end; ++i) {
            const auto start = Clock::now();
            call(i);
            times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
        }
        std::sort(times.begin(), times.end());
        results_.push_back({op, std::string(precision), rows, static_cast<int>(times.size()),
                            times[times.size() / 2], times.front(), bytes, scattered_probe});
    }

    void heads(Precision precision, int rows) {
        const int v = options_.vocab, d = options_.hidden;
        const std::string_view name = kernels::to_text(precision);
        const std::vector<float> x = normal(numel(rows, d), 1);
        const Rows<const float> in(x.data(), rows, d);
        std::vector<float> y(numel(rows, v));
        const Rows<float> out(y.data(), rows, v);
        std::vector<Matrix> full = make_copies(backend_, precision, v, d);
        measure("head", name, rows, static_cast<double>(full[0].bytes()),
                [&](int call) { kernels::matmul(backend_.pool(), pick(full, call), in, out); });
        measure("head + best", name, rows, static_cast<double>(full[0].bytes()),
                [&](int call) { measure_fused_topk(pick(full, call), in); });
        const kernels::RowMajorMatrix store = kernels::RowMajorMatrix::make(backend_.pool(), full.front());
        for (const int count : options_.gather) measure_gathered(store, count, name, in, out);
        full.clear();
        for (const int rank : options_.ranks) low_rank(precision, rank, in, out);
    }

    void low_rank(Precision precision, int rank, Rows<const float> in, Rows<float> out) {
        const int v = options_.vocab, d = options_.hidden, rows = in.rows;
        const std::string_view name = kernels::to_text(precision);
        std::vector<float> middle(numel(rows, rank));
        std::vector<Matrix> down = make_copies(backend_, precision, rank, d);
        std::vector<Matrix> up = make_copies(backend_, precision, v, rank);
        const auto narrow = [&](int call) {
            kernels::matmul(backend_.pool(), pick(down, call), in, Rows<float>(middle.data(), rows, rank));
            return Rows<const float>(middle.data(), rows, rank);
        };
        const double low_rank_bytes = static_cast<double>(down[0].bytes() + up[0].bytes());
        measure(fmt::format("low-rank r={} + best", rank), name, rows, low_rank_bytes,
                [&](int call) { measure_fused_topk(pick(up, call), narrow(call)); });
        std::vector<float> logits;
        for (const int wanted : options_.gather) {
            std::vector<std::int32_t> chosen(numel(rows, wanted));
            measure(fmt::format("router r={} + top {}", rank, wanted), name, rows, low_rank_bytes,
                    [&](int call) {
                        kernels::matmul_topk_set(backend_.pool(), pick(up, call), narrow(call), wanted,
                                                 Rows<std::int32_t>(chosen.data(), rows, wanted), logits);
                    });
        }
        measure(fmt::format("low-rank r={}", rank), name, rows, low_rank_bytes,
                [&](int call) { kernels::matmul(backend_.pool(), pick(up, call), narrow(call), out); });
    }

    /// Measures the matmuls of a decoder layer of width d, with the fusions and prefetch hints of a forward
    /// pass.
    void measure_layer(Precision precision, int rows) {
        const int d = options_.hidden, ffn = (8 * d / 3 + 31) / 32 * 32;
        const std::string_view name = kernels::to_text(precision);
        const std::size_t m = rows;
        const std::vector<float> x = normal(m * (std::max(d, ffn)), 2);
        const std::vector<float> norm = normal(d, 3);
        std::vector<float> y(m * (2 * ffn)), sum(m * d);
        const auto timed = [&](const std::string& op, int n, int k, auto expect, auto call) {
            const std::vector<Matrix> all = make_copies(backend_, precision, n, k);
            measure(op, name, rows, static_cast<double>(all[0].bytes()), [&](int number) {
                const std::size_t at = number;
                expect(all[(at + 1) % all.size()]);
                call(all[at % all.size()], Rows<const float>(x.data(), rows, k),
                     Rows<float>(y.data(), rows, n));
            });
            kernels::prefetch_next(backend_.pool(), nullptr);
        };
        const auto plain = [&](const Matrix& next) { kernels::prefetch_next(backend_.pool(), &next); };
        timed(fmt::format("norm + {0}x{0}", d), d, d, plain,
              [&](const Matrix& w, Rows<const float> in, Rows<float> out) {
                  kernels::norm_matmul(backend_.pool(), w, {norm, norm_eps}, in, out);
              });
        timed(
            fmt::format("norm + gate and up {}x{} + silu", 2 * ffn, d), 2 * ffn, d,
            [&](const Matrix& next) { kernels::prefetch_next_gated(backend_.pool(), next); },
            [&](const Matrix& w, Rows<const float> in, Rows<float> out) {
                kernels::norm_matmul_silu(backend_.pool(), w, {norm, norm_eps}, in, out,
                                          Rows<float>(out.data, rows, ffn, out.stride));
            });
        timed(fmt::format("{}x{} + residual", d, ffn), d, ffn, plain,
              [&](const Matrix& w, Rows<const float> in, Rows<float> out) {
                  kernels::matmul_add(backend_.pool(), w, in, out, Rows<float>(sum.data(), rows, d));
              });
    }

    /// Measures attention of M new rows over a context: heads of 64 without key sharing, another layer's keys
    /// in every call.
    void attention(int rows, kernels::KvType type) {
        constexpr int positions = 512, head_dim = 64, layers = 8;
        const int heads = std::max(1, options_.hidden / head_dim), width = heads * head_dim;
        const std::size_t cells = numel(positions, width);
        const std::vector<float> keys = normal(cells, 4), q = normal(rows * width, 5);
        std::vector<std::byte> stored_keys(kernels::key_bytes(type, width, positions)),
            stored_values(cells * bytes_per_value(type));
        for (int p = 0; p < positions; ++p) {
            const float* row = keys.data() + std::ptrdiff_t{p} * width;
            kernels::store_key(backend_.pool(), type, row, width, p, stored_keys.data());
            kernels::store_value(backend_.pool(), type, row, width, p, stored_values.data());
        }
        std::vector<std::vector<std::byte>> kept;
        for (int layer = 0; layer < layers; ++layer) {
            kept.push_back(stored_keys);
            kept.push_back(stored_values);
        }
        std::vector<float> out(q.size());
        std::vector<kernels::AttentionQuery> queries(rows);
        measure(fmt::format("attention of {} heads over {}", heads, positions),
                type == kernels::KvType::f32 ? "f32" : "f16", rows,
                static_cast<double>(stored_keys.size() + stored_values.size()), [&](int call) {
                    const std::size_t at = 2 * (call % layers);
                    for (int r = 0; r < rows; ++r) {
                        kernels::AttentionQuery& query = queries[r];
                        query.q = q.data() + std::ptrdiff_t{r} * width;
                        query.out = out.data() + std::ptrdiff_t{r} * width;
                        query.keys = kept[at].data();
                        query.values = kept[at + 1].data();
                        query.prefix = positions;
                    }
                    kernels::attention(backend_.pool(), {heads, heads, head_dim, 0.125f, type}, queries);
                });
    }

    /// Measures a head that returns logsumexp and the top k of each row without writing logits.
    void measure_fused_topk(const Matrix& head, Rows<const float> in) {
        const int k = std::min({options_.k, head.n(), kernels::max_fused_topk});
        ids_.resize(numel(in.rows, k));
        values_.resize(ids_.size());
        sums_.resize(in.rows);
        kernels::matmul_topk(backend_.pool(), head, in, head.n(), k, nullptr, partials_);
        kernels::finish_logsumexp(partials_, sums_);
        kernels::finish_topk(partials_, Rows<std::int32_t>(ids_.data(), in.rows, k),
                             Rows<float>(values_.data(), in.rows, k));
    }

    /// Measures scattered rows of the head: read in place, or packed first and then multiplied.
    void measure_gathered(const kernels::RowMajorMatrix& store, int count, std::string_view name,
                          Rows<const float> in, Rows<float> out) {
        // Each call reads other rows, because each draft step selects its own.
        constexpr int sets = 16;
        Rng rng(7);
        std::vector<std::vector<TokenId>> chosen(sets);
        for (auto& ids : chosen) {
            for (int i = 0; i < count; ++i)
                ids.push_back(static_cast<TokenId>(rng.below(static_cast<std::uint32_t>(options_.vocab))));
            std::sort(ids.begin(), ids.end());
        }
        const auto call_ids = [&](int call) -> std::span<const TokenId> { return chosen[call % sets]; };
        const int row_length = static_cast<int>(store.row_bytes());
        const auto [known, fresh] = scattered_probes_.try_emplace(row_length, 0.0);
        if (fresh)
            known->second = probe_scattered_bandwidth(backend_.pool().threads(), cold_megabytes, row_length);
        kernels::GatheredMatrix packed;
        const double row_bytes = static_cast<double>(store.row_bytes()) * count;
        if (in.rows == options_.rows.front())
            measure(fmt::format("gather {}", count), name, 0, 2 * row_bytes,
                    [&](int call) { packed.fill(backend_.pool(), store, call_ids(call)); });
        measure(
            fmt::format("indexed head {}", count), name, in.rows, row_bytes,
            [&](int call) {
                kernels::matmul_rows(backend_.pool(), store, call_ids(call), in,
                                     Rows<float>(out.data, in.rows, count));
            },
            known->second);
        packed.fill(backend_.pool(), store, call_ids(0));
        measure(fmt::format("gathered head {}", count), name, in.rows,
                static_cast<double>(packed.matrix().bytes()), [&](int) {
                    kernels::matmul(backend_.pool(), packed.matrix(), in,
                                    Rows<float>(out.data, in.rows, count));
                });
    }

    void selection(int rows) {
        const int v = options_.vocab, k = std::min(options_.k, v);
        const std::vector<float> x = normal(numel(rows, v), 3);
        const Rows<const float> in(x.data(), rows, v);
        const auto cells = numel(rows, k);
        std::vector<std::int32_t> ids(cells);
        std::vector<float> values(cells), sums(rows);
        const double bytes = static_cast<double>(x.size() * sizeof(float));
        measure(fmt::format("top-k k={}", k), "f32", rows, bytes, [&](int) {
            kernels::topk(backend_.pool(), in, k, Rows<std::int32_t>(ids.data(), rows, k),
                          Rows<float>(values.data(), rows, k));
        });
        for (const int wanted : options_.gather) {
            std::vector<std::int32_t> set(numel(rows, wanted));
            measure(fmt::format("top set k={}", wanted), "f32", rows, bytes, [&](int) {
                kernels::topk_set(backend_.pool(), in, wanted, Rows<std::int32_t>(set.data(), rows, wanted));
            });
        }
        measure("log-sum-exp", "f32", rows, bytes,
                [&](int) { kernels::logsumexp(backend_.pool(), in, sums); });
    }

    const KernelSettings& options_;
    kernels::Backend& backend_;
    const JobHooks& hooks_;
    double planned_ = 1;
    std::vector<KernelTime> results_;
    std::map<int, double> scattered_probes_;  ///< GB/s, by bytes per row
    kernels::PartialTopK partials_;
    std::vector<std::int32_t> ids_;
    std::vector<float> values_, sums_;
};

}  // namespace

Status check_kernel_settings(const KernelSettings& options) {
    const auto positive = [](const char* name, int value) -> Status {
        if (value > 0) return {};
        return bad_input("{} {}: must be at least 1", name, value);
    };
    DS_TRY(positive("--vocab", options.vocab));
    DS_TRY(positive("--hidden", options.hidden));
    for (const int count : options.gather) DS_TRY(positive("--gather", count));
    DS_TRY(positive("--k", options.k));
    for (const int rows : options.rows) DS_TRY(positive("--rows", rows));
    for (const int rank : options.ranks)
        if (rank < 1 || rank > options.hidden)
            return bad_input("--rank {}: must be 1 to --hidden {}", rank, options.hidden);
    if (!(options.seconds > 0)) return bad_input("--seconds {}: must be positive", options.seconds);
    for (const std::string& name : options.precisions)
        if (!kernels::precision_from(name))
            return bad_input("--precision {}: unknown; known are f32, bf16, int8, int4", name);
    constexpr double max_weights = 4e9;
    if (static_cast<double>(options.vocab) * options.hidden > max_weights)
        return bad_input("--vocab {} times --hidden {}: more than {:.0f} weights; use smaller sizes",
                         options.vocab, options.hidden, max_weights);
    return {};
}

std::vector<std::string> fit_kernel_sizes(KernelSettings& settings) {
    std::vector<std::string> lines;
    if (settings.ranks.empty()) settings.ranks = {std::max(1, settings.hidden / 8)};
    std::vector<int> gather;
    for (const int count : settings.gather) {
        const int fitting = std::min(count, settings.vocab);
        if (fitting < count)
            lines.push_back(fmt::format("gather {}: the head has {} rows, so {} are gathered", count,
                                        settings.vocab, fitting));
        if (std::ranges::find(gather, fitting) == gather.end()) gather.push_back(fitting);
    }
    settings.gather = std::move(gather);
    return lines;
}

Result<KernelReport> measure_kernels(const KernelSettings& given, const JobHooks& hooks) {
    DS_TRY(check_kernel_settings(given));
    KernelSettings settings = given;
    std::vector<std::string> notes = fit_kernel_sizes(settings);
    if (const int max_k = std::min(settings.vocab, kernels::max_fused_topk); settings.k > max_k)
        notes.push_back(
            fmt::format("k {}: the heads with \"+ best\" select {}, the most that fits", settings.k, max_k));
    const int cores = describe_machine().cores;
    const auto backend = kernels::make_cpu_backend(settings.threads > 0 ? settings.threads : cores);
    KernelReport report;
    report.settings = settings;
    report.notes = std::move(notes);
    report.isa = std::string(kernels::to_text(backend->pool().isa()));
    report.threads = backend->pool().threads();
    report.probe_before = probe_read_bandwidth(backend->pool().threads(), cold_megabytes);
    report.ops = KernelBench(settings, *backend, hooks).run();
    if (hooks.is_cancelled()) return Error{ErrorKind::cancelled, "stopped while measuring kernels"};
    report.probe_after = probe_read_bandwidth(backend->pool().threads(), cold_megabytes);
    return report;
}

}  // namespace draftscope
