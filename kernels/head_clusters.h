#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Candidates from clusters of a head's rows that lie on a device (CORAL's groups, DynaSpec's clusters):
/// product of the clusters that rows chose and each row's best among its own, without the logits or the
/// choice leaving it. The caller holds Device::busy(), but for propose().
class DeviceClusters {
  public:
    struct Parts {
        std::vector<std::int32_t> tokens;      ///< of each row of the matrix; fillings have any
        std::vector<std::int32_t> first;       ///< row where each cluster begins; the last one is every row's
        std::vector<std::int32_t> sizes;       ///< tokens of each
        std::vector<std::int32_t> cluster_of;  ///< [vocab]; -1 = none
    };
    /// Before the first call.
    void set_parts(Parts parts);
    /// Tokens of the `count` largest clusters, or the smallest, and the last one.
    int most_tokens(int count) const { return tokens_[largest(count)]; }
    int least_tokens(int count) const { return least_[largest(count)]; }

    /// For rows that choose `count` clusters each.
    bool fits(const Matrix& rows, int count, int k) const;
    /// Memory for up to `x_rows` rows; false when it is out.
    bool reserve(const Matrix& rows, int x_rows, int count, int k);
    /// Row m chose chosen[m * count + i], rising; x as `rows` reads it. ids are tokens, [x_rows, k], -1 where
    /// a row has fewer. Reads the union of the rows' clusters, or each row's own `per_row`: the same bits.
    void ask(const Matrix& rows, const half_t* x, int x_rows, const std::int32_t* chosen, int count,
             bool per_row, int k, std::int32_t* ids, float* values, float* sums);
    /// In place of the best all of each row's own: logits [x_rows, stride], their tokens, rising, and how
    /// many there are.
    void ask_own(const Matrix& rows, const half_t* x, int x_rows, const std::int32_t* chosen, int count,
                 bool per_row, float* logits, std::int32_t* tokens, std::int32_t* sizes, int stride);
    /// The tokens of `count` clusters and the last one, rising, and how many; of several sets, `stride`
    /// apart. Behind reserve().
    void ask_tokens(Device& device, const std::int32_t* chosen, int count, std::int32_t* tokens,
                    std::int32_t* size, int sets = 1, int stride = 0);

    /// Of host rows, with one wait.
    void propose(const Matrix& rows, Rows<const float> x, std::span<const std::int32_t> chosen, int count,
                 bool per_row, int k, Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums);

  private:
    std::size_t largest(int count) const {
        return std::min(static_cast<std::size_t>(count), tokens_.size() - 1);
    }
    int most_columns(int x_rows, int count, bool per_row) const {
        return columns_[largest(per_row ? count : x_rows * count)];
    }
    bool bring_parts(Device& device);
    ClustersOp list_of(const std::int32_t* chosen, int x_rows, int count, int columns) const;
    MatmulOp product_of(const Matrix& rows, const half_t* x, const ClustersOp& list, int columns) const;

    Parts parts_;
    // Of the i largest clusters, or smallest, with the last one: i from 0 on.
    std::vector<int> tokens_ = {0}, least_ = {0}, columns_ = {0};
    bool fresh_ = false;
    DeviceArray<std::int32_t> tokens_there_, first_there_, sizes_there_, cluster_of_there_;
    DeviceArray<std::int32_t> lists_, chosen_there_, token_columns_;
    DeviceArray<float> logits_;
    DeviceArray<std::uint32_t> bitmap_;
    DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope::kernels
