#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"

namespace draftscope::kernels {

/// cos and sin of the first positions, each [rows(), head_dim / 2].
struct RopeTable {
    int head_dim = 0;
    int positions = 0;                ///< maximum number of rows
    float scale = 1;                  ///< of cos and sin: YaRN's attention factor
    std::vector<double> frequencies;  ///< head_dim / 2
    std::vector<float> cos, sin;

    int rows() const { return frequencies.empty() ? 0 : static_cast<int>(cos.size() / frequencies.size()); }
    /// Computes the first `min_positions` rows, in whole blocks, of at most `positions`.
    /// The arrays may move, so no pass may run meanwhile.
    void extend(int min_positions);
    static constexpr int block = 4096;
};
/// Makes a table with its first block. `divisors` (head_dim / 2, may be empty) divide the base frequencies
/// (llama-3 scaling).
RopeTable make_rope_table(int head_dim, float theta, int positions, std::span<const float> divisors = {},
                          float scale = 1);

/// A table as an operand of ops. A device keeps all positions in its memory; the CPU reads the table, which
/// grows with the positions in use.
class DeviceRope {
  public:
    /// Returns false if out of memory. `table` must outlive the object.
    bool load(Backend& backend, RopeTable& table);
    /// Makes the first `positions` available. On the CPU, the addresses may change.
    void extend(int positions) { table_->extend(positions); }
    const float* cos() const { return on_device_.bytes() > 0 ? on_device_.as<float>() : table_->cos.data(); }
    const float* sin() const {
        return on_device_.bytes() > 0 ? on_device_.as<float>() + table_->cos.size() : table_->sin.data();
    }

  private:
    RopeTable* table_ = nullptr;
    DeviceBuffer on_device_;  ///< cos, then sin
};

}  // namespace draftscope::kernels
