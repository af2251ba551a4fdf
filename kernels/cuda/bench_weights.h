#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/device_bench.h"
#include "kernels/ops/float16.h"

/// Weights, lists of rows and buffers of the kernel benchmark, with random contents. Successive calls use
/// different ones, so that L2 holds none of them: `cold_bytes` lie between two uses of the same copy.
namespace draftscope::kernels {

inline constexpr int max_copies = 64;

/// Returns the number of copies of `bytes` bytes that exceed L2.
inline int num_copies(double cold_bytes, double bytes) {
    return static_cast<int>(std::clamp(cold_bytes / bytes + 1, 1.0, 1.0 * max_copies));
}

/// Copies of one matrix of random weights.
class Copies {
  public:
    /// Returns false if memory runs out.
    bool make(CudaBackend& device, double cold_bytes, int n, int k, std::uint64_t seed) {
        n_ = n;
        k_ = k;
        const auto values = static_cast<std::size_t>(n) * static_cast<std::size_t>(padded_columns(k));
        bytes_ = static_cast<double>(values) * sizeof(half_t);
        for (int i = 0; i < num_copies(cold_bytes, bytes_); ++i) {
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

/// Lists of `rows` rows of a matrix, ascending.
class RowLists {
  public:
    /// Takes random rows, or a different run of neighbours in each list. Returns false if memory runs out.
    bool make(CudaBackend& device, double cold_bytes, int rows, int matrix_rows, double row_bytes,
              bool random) {
        rows_ = rows;
        lists_ = num_copies(cold_bytes, rows * row_bytes);
        std::vector<std::int32_t> all;
        Rng rng(11);
        for (int l = 0; l < lists_; ++l) {
            all.push_back(rows);
            const auto first = static_cast<std::ptrdiff_t>(all.size());
            const int begin = static_cast<int>(std::int64_t{l} * (matrix_rows - rows) / lists_);
            for (int i = 0; i < rows; ++i)
                all.push_back(
                    random ? static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(matrix_rows)))
                           : begin + i);
            std::sort(all.begin() + first, all.end());
        }
        const std::size_t bytes = all.size() * sizeof(std::int32_t);
        if (!buffer_.reserve(device, bytes)) return false;
        device.upload(buffer_.as<void>(), all.data(), bytes);
        return device.synchronize().ok();
    }
    /// The list for call number `call`; the entry before it holds the number of rows.
    const std::int32_t* at(int call, bool warm) const {
        return buffer_.as<std::int32_t>() + (warm ? 0 : call % lists_) * (rows_ + 1) + 1;
    }

  private:
    DeviceBuffer buffer_;
    int rows_ = 0, lists_ = 1;
};

/// Correlation between the rows of a tree level. With it, four rows' shortlists of 2048 have the same union
/// size as SpecVocab's on the demo model.
inline constexpr double row_correlation = 0.96;

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

/// What the benchmark works on: weights, buffers for the rows of a call, and what was measured.
struct DeviceBench {
    const DeviceBenchOptions& options;
    CudaBackend& device;
    Copies full = {}, trimmed = {};
    std::vector<LowRank> pairs = {};      ///< by rank
    std::vector<Gathered> gathered = {};  ///< by number of rows
    DeviceBuffer stream = {}, sink = {};
    DeviceBuffer x = {}, correlated = {};
    const DeviceBuffer* input = &x;  ///< input of the heads with per-row shortlists
    DeviceBuffer y = {}, narrow = {}, narrow_half = {}, ids = {}, values = {}, sums = {}, select = {},
                 shortlists = {};
    DeviceBuffer router = {}, bitmap = {}, tokens = {}, columns = {}, size = {};
    bool library_found = false;
    std::vector<DeviceMeasured> results = {};
    std::vector<std::string> skipped = {};
};

inline double cold_bytes(const DeviceBenchOptions& options) {
    return options.cold_mb * 1e6;
}

inline std::size_t stream_bytes(const DeviceBenchOptions& options) {
    return static_cast<std::size_t>(options.stream_mb * 1e6) / 1024 * 1024;
}

inline int max_gather(const DeviceBenchOptions& options) {
    return *std::max_element(options.gather.begin(), options.gather.end());
}

inline int max_rank(const DeviceBenchOptions& options) {
    return *std::max_element(options.rank.begin(), options.rank.end());
}

template <typename T>
T* reserve(DeviceBench& b, DeviceBuffer& buffer, std::size_t count) {
    return buffer.reserve(b.device, count * sizeof(T)) ? buffer.as<T>() : nullptr;
}

inline bool make_weights(DeviceBench& b) {
    const DeviceBenchOptions& o = b.options;
    const double cold = cold_bytes(o);
    bool enough = b.full.make(b.device, cold, o.vocab, o.hidden, 1) &&
                  b.trimmed.make(b.device, cold, o.trimmed, o.hidden, 101) &&
                  b.stream.reserve(b.device, stream_bytes(o)) && reserve<float>(b, b.sink, 1) != nullptr;
    for (const int rank : o.rank) {
        LowRank& made = b.pairs.emplace_back();
        made.rank = rank;
        enough = enough && made.down.make(b.device, cold, rank, o.hidden, 201) &&
                 made.up.make(b.device, cold, o.vocab, rank, 301);
    }
    const double row_bytes = padded_columns(o.hidden) * 2.0;
    for (const int count : o.gather) {
        Gathered& made = b.gathered.emplace_back();
        made.count = count;
        enough = enough && made.packed.make(b.device, cold, count, o.hidden, 401) &&
                 made.random.make(b.device, cold, count, o.vocab, row_bytes, true) &&
                 made.neighbours.make(b.device, cold, count, o.vocab, row_bytes, false);
    }
    // Random values: reading zeros would take less power.
    if (enough)
        cuda::launch_fill_normal(b.stream.as<half_t>(), stream_bytes(o) / sizeof(half_t), 1.0f, 601,
                                 b.device.stream());
    return enough;
}

inline void upload_correlated(DeviceBench& b, std::size_t width, std::size_t rows) {
    Rng rng(13);
    std::vector<double> common(width);
    for (double& value : common) value = std::sqrt(row_correlation) * rng.normal();
    std::vector<half_t> values;
    for (std::size_t m = 0; m < rows; ++m)
        for (const double value : common)
            values.push_back(
                to_bf16(static_cast<float>(value + std::sqrt(1 - row_correlation) * rng.normal())));
    b.device.upload(b.correlated.as<void>(), values.data(), values.size() * sizeof(half_t));
}

inline Status make_rows(DeviceBench& b, int rows) {
    const DeviceBenchOptions& o = b.options;
    const auto m = static_cast<std::size_t>(rows);
    const auto v = static_cast<std::size_t>(o.vocab);
    const auto gathered = static_cast<std::size_t>(max_gather(o));
    const auto rank = static_cast<std::size_t>(max_rank(b.options));
    std::size_t router_bytes = 1;
    for (const int count : o.gather)
        if (can_route(o.vocab, count))
            router_bytes = std::max(router_bytes, router_scratch_bytes(rows, o.vocab, count));
    const std::size_t x_values = m * static_cast<std::size_t>(padded_columns(o.hidden));
    const bool enough = reserve<half_t>(b, b.x, x_values) && reserve<half_t>(b, b.correlated, x_values) &&
                        reserve<float>(b, b.y, m * v) && reserve<float>(b, b.narrow, m * rank) &&
                        reserve<half_t>(b, b.narrow_half,
                                        m * static_cast<std::size_t>(padded_columns(max_rank(b.options)))) &&
                        reserve<std::int32_t>(b, b.ids, m * max_topk) &&
                        reserve<float>(b, b.values, m * max_topk) && reserve<float>(b, b.sums, m) &&
                        b.router.reserve(b.device, router_bytes) &&
                        b.select.reserve(b.device, std::max(topk_scratch_bytes(rows, o.vocab, o.k),
                                                            matmul_topk_scratch_bytes(rows, o.vocab, o.k))) &&
                        reserve<std::int32_t>(b, b.shortlists, m * gathered) &&
                        reserve<std::uint32_t>(b, b.bitmap, v / 32 + 1) &&
                        reserve<std::int32_t>(b, b.tokens, std::min(m * gathered, v)) &&
                        reserve<std::int32_t>(b, b.columns, v) && reserve<std::int32_t>(b, b.size, 1);
    if (!enough) return failed("{}: not enough memory for {} rows", b.device.info().name, rows);
    cuda::launch_fill_normal(b.x.as<half_t>(), x_values, 1.0f, 7, b.device.stream());
    upload_correlated(b, x_values / m, m);
    return b.device.synchronize();
}

}  // namespace draftscope::kernels
