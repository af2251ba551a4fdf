#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matrix.h"

namespace draftscope::kernels {

/// Candidates from clusters of a head's rows that lie on a device (CORAL's groups, DynaSpec's clusters):
/// product of chosen blocks and each row's best among its own, in one wait and without the logits leaving it.
class DeviceClusters {
  public:
    /// Token of each row of the matrix, rows that only fill a block included. Before the first call.
    void set_tokens(std::vector<std::int32_t> tokens);
    /// For up to `support` candidates a row.
    static bool fits(const Matrix& rows, int support, int k);

    /// Row m's candidates lie in `runs` runs of the columns that `blocks` make, as SelectOp has it: `ends`
    /// and `shifts` are [x.rows, runs]. ids are tokens, [x.rows, k], -1 where a row has fewer.
    void propose(const Matrix& rows, std::span<const int> blocks, Rows<const float> x, int runs,
                 std::span<const std::int32_t> ends, std::span<const std::int32_t> shifts, int k,
                 Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums);

  private:
    std::vector<std::int32_t> tokens_;
    DeviceBuffer tokens_there_, lists_;
    std::vector<std::int32_t> said_;  ///< the lists, as uploaded
};

}  // namespace draftscope::kernels
