#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/heads/head_call.h"
#include "kernels/device_array.h"
#include "kernels/matrix.h"

namespace draftscope {

/// Selects candidates from some clusters of a head's rows (CORAL's groups, DynaSpec's clusters). A product
/// over the clusters that rows chose is followed by the selection of each row's k best among its own. The
/// caller holds Backend::submit_mutex().
class ClusterOps {
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
    bool reserve(kernels::Backend& backend, int x_rows, int count, int k);
    /// What the rows of a call chose: row m chose `count` clusters, ascending, from chosen[m * count] on.
    struct Choice {
        const std::int32_t* chosen = nullptr;  ///< in device memory
        int count = 0;
        bool per_row = false;  ///< reads each row's clusters, not their union; results are bit-identical
    };
    /// Enqueues the candidates of the call's rows from `matrix`, or all logits of their clusters if drafts
    /// are sampled.
    void enqueue(const kernels::Matrix& matrix, HeadCall& call, const Choice& choice);
    /// Enqueues the list of tokens of `count` clusters and the last one, ascending, and its size. The lists
    /// of several sets are `stride` apart.
    void enqueue_tokens(kernels::Backend& backend, const std::int32_t* chosen, int count,
                        std::int32_t* tokens, std::int32_t* size, int sets = 1, int stride = 0);

  private:
    std::size_t largest(int count) const {
        return std::min(static_cast<std::size_t>(count), tokens_.size() - 1);
    }
    int max_columns(int x_rows, int count, bool per_row) const {
        return columns_[largest(per_row ? count : x_rows * count)];
    }
    bool upload_parts(kernels::Backend& backend);
    kernels::ClustersOp list_of(const std::int32_t* chosen, int x_rows, int count, int columns) const;
    void enqueue_product(const kernels::Matrix& matrix, HeadCall& call, const kernels::ClustersOp& list,
                         int first, int columns);
    void enqueue_best(HeadCall& call, const kernels::ClustersOp& list, int first, int columns);
    void enqueue_support(HeadCall& call, const kernels::ClustersOp& list, int first, int columns);

    Parts parts_;
    // Entry i: number of tokens, and of matrix rows, in the i largest clusters and the last one.
    std::vector<int> tokens_ = {0}, columns_ = {0};
    bool upload_pending_ = false;
    kernels::DeviceArray<std::int32_t> d_tokens_, d_first_, d_sizes_, d_cluster_of_;
    kernels::DeviceArray<std::int32_t> lists_, token_columns_;
    kernels::DeviceArray<float> logits_;
    kernels::DeviceArray<std::uint32_t> bitmap_;
    kernels::DeviceArray<std::byte> scratch_;
};

}  // namespace draftscope
