#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft/decoding_heads.h"
#include "engine/draft/tree_growth.h"

namespace draftscope {

/// The heads of Medusa or Hydra. Head `level` computes the LM head's input from the target's hidden of the
/// last verified slot. Hydra also reads the embeddings of the path, root first. They run one pass at a time;
/// the caller holds Backend::submit_mutex(), except in prepare().
class PathHeads {
  public:
    /// `uses_path`: false = one row serves every node of a level.
    PathHeads(DecodingHeadWeights weights, bool uses_path, int hidden)
        : weights_(std::move(weights)), uses_path_(uses_path), hidden_(hidden) {}
    /// Uploads the biases. The weights belong to `backend`. Fails if memory runs out.
    Status prepare(kernels::Backend& backend);
    const DecodingHeadWeights& weights() const { return weights_; }
    int levels() const { return static_cast<int>(weights_.heads.size()); }
    bool uses_path() const { return uses_path_; }
    int hidden() const { return hidden_; }

    /// Allocates memory for passes of up to `rows` rows, for the rest of the step. Returns false if out of
    /// memory.
    bool reserve(RoundMemory& memory, int rows);
    /// Input of a pass, [rows, stride(level)]: the hidden, the path's embeddings if used, then zeros.
    kernels::Activations inputs() const { return inputs_; }
    int stride(int level) const { return first_block(level).weight.device_matrix().stride; }
    /// Enqueues the head of `level` over `rows` rows of inputs().
    void enqueue(int level, int rows);
    /// Output of the latest pass as input of the LM head, [rows, padded_columns(d)].
    kernels::Activations head_rows() const { return half_; }

  private:
    const ResidualBlock& first_block(int level) const { return weights_.heads[level].front(); }
    void enqueue_blocks(int level, int rows);

    DecodingHeadWeights weights_;
    bool uses_path_;
    int hidden_, widest_ = 0;
    kernels::Backend* backend_ = nullptr;
    kernels::DeviceBuffer biases_;         ///< of each block and then its shortcut, [d] each
    std::vector<std::size_t> first_bias_;  ///< of each head, in biases_
    kernels::Activations inputs_, half_;
    float *gate_ = nullptr, *out_ = nullptr;
    kernels::GraphKeys graphs_;
};

/// Computes the rows of Medusa's and Hydra's trees with the head of each level. Its input is the target's
/// hidden and, if uses_path(), the embeddings of the path's tokens.
class PathRows final : public LevelRows {
  public:
    /// Both arguments must outlive this object.
    PathRows(PathHeads& heads, const Target& target) : heads_(heads), target_(target) {}
    int hidden() const override { return heads_.hidden(); }
    bool shared_logits() const override { return !heads_.uses_path(); }
    bool reserve(RoundStep& step, int trees, int nodes) override;
    Status enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) override;
    kernels::Activations enqueue_head_rows(int) override { return heads_.head_rows(); }

  private:
    void gather_inputs(const Level& level);
    const float* gather_path(const Level& level);

    PathHeads& heads_;
    const Target& target_;
    float* rows_ = nullptr;  ///< [rows, 2d]: a row's token embedding, the target's hidden
    float* paths_[2] = {};   ///< [nodes, (level + 1) d]: embeddings of the paths; levels alternate
};

}  // namespace draftscope
