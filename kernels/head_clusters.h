#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Selects candidates on a device from some clusters of a head's rows (CORAL's groups, DynaSpec's clusters).
/// A product over the clusters that rows chose is followed by the selection of each row's k best among its
/// own. Choices and logits stay in device memory. The caller holds Device::submit_mutex().
class DeviceClusters {
  public:
    struct Parts {
        std::vector<std::int32_t> tokens;      ///< token of each matrix row; any value in padding rows
        std::vector<std::int32_t> first;       ///< first matrix row of each; all rows include the last
        std::vector<std::int32_t> sizes;       ///< number of tokens of each cluster
        std::vector<std::int32_t> cluster_of;  ///< [vocab]; -1 = none
    };
    /// Sets the clusters; call it before any other function.
    void set_parts(Parts parts);
    /// Returns the number of tokens in the `count` largest clusters and the last one.
    int max_tokens(int count) const { return tokens_[largest(count)]; }

    /// Reserves memory for calls of up to `x_rows` rows with `count` clusters each. Returns false if memory
    /// runs out.
    bool reserve(const Matrix& rows, int x_rows, int count, int k);
    /// Rows [rows, stride of the matrix] and their clusters, in device memory. Row m chose `count` clusters,
    /// ascending, from chosen[m * count] on.
    struct Call {
        const half_t* x = nullptr;
        int rows = 0;
        const std::int32_t* chosen = nullptr;
        int count = 0;
        bool per_row = false;  ///< reads each row's clusters, not their union; results are bit-identical
    };
    /// Enqueues the k best of each row: `ids` and `values` [rows, k]. `sums` [rows] receives log(sum(exp))
    /// over the row's clusters. Ids are tokens; missing candidates have id -1.
    void enqueue(const Matrix& matrix, const Call& call, int k, std::int32_t* ids, float* values,
                 float* sums);
    /// Enqueues all logits of each row's clusters and their tokens, ascending, [rows, stride]. `sizes` [rows]
    /// receives their number.
    void enqueue_own(const Matrix& matrix, const Call& call, float* logits, std::int32_t* tokens,
                     std::int32_t* sizes, int stride);
    /// Enqueues the list of tokens of `count` clusters and the last one, ascending, and its size. The lists
    /// of several sets are `stride` apart. Call reserve() before.
    void enqueue_tokens(Device& device, const std::int32_t* chosen, int count, std::int32_t* tokens,
                        std::int32_t* size, int sets = 1, int stride = 0);

  private:
    std::size_t largest(int count) const {
        return std::min(static_cast<std::size_t>(count), tokens_.size() - 1);
    }
    int max_columns(int x_rows, int count, bool per_row) const {
        return columns_[largest(per_row ? count : x_rows * count)];
    }
    bool upload_parts(Device& device);
    ClustersOp list_of(const std::int32_t* chosen, int x_rows, int count, int columns) const;
    MatmulOp product_of(const Matrix& rows, const half_t* x, const ClustersOp& list, int columns) const;

    Parts parts_;
    // Entry i: number of tokens, and of matrix rows, in the i largest clusters and the last one.
    std::vector<int> tokens_ = {0}, columns_ = {0};
    bool fresh_ = false;
    DeviceArray<std::int32_t> d_tokens_, d_first_, d_sizes_, d_cluster_of_;
    DeviceArray<std::int32_t> lists_, token_columns_;
    DeviceArray<float> logits_;
    DeviceArray<std::uint32_t> bitmap_;
    DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope::kernels
