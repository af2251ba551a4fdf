#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

/// Random weights and lists of rows for the kernel benchmark. Successive calls use different ones, so that L2
/// holds none of them: `cold_bytes` lie between two uses of the same copy.
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

}  // namespace draftscope::kernels
