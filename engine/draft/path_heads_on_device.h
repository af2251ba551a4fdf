#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/draft/decoding_heads.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// The residual blocks of Medusa's or Hydra's heads on a device. One pass at a time; the caller holds
/// Device::busy() around what asks.
class PathHeadsOnDevice {
  public:
    /// `weights` lie there and stay where they are; without a device, nothing.
    Status prepare(kernels::Device* device, const DecodingHeadWeights& weights, int hidden);
    bool ready() const { return device_ != nullptr; }
    kernels::Device& device() const { return *device_; }
    int levels() const { return static_cast<int>(weights_->heads.size()); }

    /// Memory for passes of up to `rows` rows; false when there is none.
    bool make_room(int rows);
    /// [rows, stride(level)] of a pass: the hidden first, then what the head sees of the path, then zeros.
    kernels::half_t* inputs() const { return inputs_.as<kernels::half_t>(); }
    int stride(int level) const { return first_block(level).weight.device_matrix().stride; }
    /// The head of `level` over inputs() of `rows` rows.
    void ask(int level, int rows);
    /// What it gives, as the LM head reads it, [rows, padded_columns(d)].
    const kernels::half_t* head_rows() const { return half_.as<kernels::half_t>(); }

    /// A pass from host rows [rows, inputs of the level] to host rows [rows, d].
    void run(int level, Rows<const float> x, Rows<float> out);

  private:
    const ResidualBlock& first_block(int level) const { return weights_->heads[level].front(); }
    void ask_blocks(int level, int rows);

    kernels::Device* device_ = nullptr;
    const DecodingHeadWeights* weights_ = nullptr;
    int hidden_ = 0, widest_ = 0;
    kernels::DeviceBuffer biases_;         ///< of all blocks, then of their shortcuts, [d] each
    std::vector<std::size_t> first_bias_;  ///< of each head's blocks
    kernels::DeviceBuffer inputs_, half_, gate_, out_, staging_;
    std::map<std::pair<int, int>, std::uint64_t> keys_;  ///< of graphs, by level and rows
};

/// Rows of Medusa's and Hydra's trees: what head `level` makes of the target's hidden and, where it sees the
/// path, of the embeddings of its tokens.
class PathRows final : public LevelRows {
  public:
    /// Its heads lie on a device when trees are to grow.
    PathRows(DecodingHeads& heads, const Target& target) : heads_(heads), target_(target) {}
    kernels::Device& device() override { return heads_.on_device()->device(); }
    int hidden() const override { return heads_.hidden(); }
    bool shared_logits() const override { return !heads_.uses_path(); }
    bool make_room(int trees, int nodes) override;
    Status ask(const Level& level, FunctionRef<void(const float*)> inputs_known) override;
    const kernels::half_t* ask_head_rows(int) override { return heads_.on_device()->head_rows(); }

  private:
    void bring_inputs(const Level& level);
    const float* bring_path(const Level& level);

    DecodingHeads& heads_;
    const Target& target_;
    const float* embeddings_ = nullptr;  ///< [V, d] there
    std::vector<kernels::CopyRowsOp> copies_;
    kernels::DeviceBuffer rows_;      ///< [rows, 2d]: the embedding a row starts from, the target's hidden
    kernels::DeviceBuffer paths_[2];  ///< [nodes, (level + 1) d]: the embeddings of a path, of two levels
};

}  // namespace draftscope
