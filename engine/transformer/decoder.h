#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/transformer/attention_layout.h"
#include "kernels/graph_keys.h"
#include "kernels/rope.h"

namespace draftscope {

/// The activations of a decoder's layers, in the backend's memory.
class DecoderActivations {
  public:
    /// `input_width` is the width of the first layer's attention input.
    void set_shape(const LayerShape& shape, int input_width);
    /// Reserves memory for `rows` rows; growing discards the contents. Returns false if out of memory.
    bool reserve(kernels::Backend& backend, int rows);
    /// Changes whenever the addresses may have changed.
    int reservations() const { return reservations_; }

    kernels::DeviceBuffer residual;    ///< [rows, hidden] f32
    kernels::ActivationBuffer input;   ///< [rows, padded_columns(larger of input width and hidden)]
    kernels::DeviceBuffer qkv;         ///< [rows, queries, keys and values] f32
    kernels::ActivationBuffer mixed;   ///< [rows, padded_columns(q width)], what attention returns
    kernels::DeviceBuffer gate_up;     ///< [rows, 2 * ffn] f32
    kernels::ActivationBuffer active;  ///< [rows, padded_columns(ffn)], silu(gate) * up
    kernels::DeviceBuffer projected;   ///< [rows, hidden] f32, before a norm of the layer's output

  private:
    LayerShape shape_;
    int input_width_ = 0;
    int capacity_ = 0;  ///< in rows
    int reservations_ = 0;
};

/// Runs decoder layers on a device, with all activations in its memory. The layers' matrices belong to the
/// device; the decoder uploads their vectors and the rotation table. It supports one pass at a time, during
/// which the caller holds Backend::submit_mutex().
class Decoder {
  public:
    /// Uploads the vectors; locks Backend::submit_mutex() itself. `layers` and `rope` must outlive the
    /// decoder, which extends `rope` before a pass that needs more rows; a device gets all of them at once.
    /// `input_width` is the width of the first layer's attention input if that is not the hidden
    /// size (EAGLE-3). Returns an error if out of device memory.
    Status prepare(kernels::Backend& backend, const LayerShape& shape, kernels::RopeTable& rope,
                   std::span<const DecoderLayer> layers, int input_width = 0);
    kernels::Backend& device() { return *backend_; }

    /// Uploads a vector, such as a norm, to memory that the decoder owns. Returns null if `values` is empty.
    /// If out of memory, returns null and sets the device's error.
    const float* keep(std::span<const float> values);

    /// Uploads the layouts of passes that follow in one transfer, so that begin() uploads nothing between
    /// them. Returns an error if out of device memory.
    Status upload_layouts(std::span<const DecoderBatch> batches);
    /// Begins a pass over the rows of `batch`, whose caches are in device memory. Uploads its layout unless
    /// the latest upload has it. Returns an error if out of device memory.
    Status begin(const DecoderBatch& batch);
    /// Replaces the ancestor slots of begin() by an array in the backend's memory with the same layout.
    void use_ancestor_slots(const std::int32_t* slots) { layout_.batch().ancestor_slots = slots; }
    /// Also replaces positions and ancestor counts. The counts must not exceed those of the batch.
    void use_rows(const kernels::TreeRows& rows) {
        kernels::AttentionBatch& batch = layout_.batch();
        batch.position = rows.positions;
        batch.ancestor_count = rows.ancestor_counts;
        batch.ancestor_slots = rows.ancestor_slots;
    }
    /// Reserves memory for passes of `rows` rows, so that smaller passes do not reallocate and discard
    /// results. Returns false if out of memory.
    bool reserve_rows(int rows) { return activations_.reserve(*backend_, rows); }
    int rows() const { return rows_; }
    /// The residual stream, [rows, hidden] f32.
    float* residual() const { return activations_.residual.as<float>(); }
    /// Scratch for the input of a matmul, [rows, padded_columns(larger of input width and hidden)].
    kernels::Activations input() const { return activations_.input; }
    int hidden_stride() const { return kernels::padded_columns(shape_.hidden); }

    /// residual += W_o attention(W_qkv x). `x` has the stride of the layer's qkv matrix.
    void attend(int layer, int cache_layer, kernels::Activations x);
    /// The same with x = RMSNorm(residual). `norm` [hidden] is in device memory; null = no norm.
    void attend_residual(int layer, int cache_layer, const float* norm);
    /// residual += down(silu(gate x) * up x), where x = RMSNorm(residual), or the residual itself without
    /// ffn_norm. `next` is the matrix of the following product, if known, for prefetching.
    void feed_forward(int layer, const kernels::Matrix* next = nullptr);
    /// Runs both halves of a layer, with equal indices of layer and cache layer.
    void run(int layer, const kernels::Matrix* next);
    /// The residual as the input of a product, normalised with `norm` [hidden]; null = no norm.
    kernels::NormSpec normed_residual(const float* norm) const {
        return {residual(), shape_.hidden, norm, shape_.norm_eps};
    }

    /// Runs `work`, which enqueues the ops of this pass, through Backend::graph(); equal passes share a
    /// graph. `key` distinguishes passes whose other ops or addresses differ.
    void replay(std::span<const std::int64_t> key, FunctionRef<void()> work);

  private:
    struct Vectors {
        const float* attn_norm = nullptr;
        const float* ffn_norm = nullptr;
        const float* qkv_bias = nullptr;
        const float* q_norm = nullptr;
        const float* k_norm = nullptr;
        const float* attn_post_norm = nullptr;
        const float* ffn_post_norm = nullptr;
    };
    bool reserve_partial();
    void attend(int layer, int cache_layer, kernels::Activations x, const kernels::NormSpec& norm);
    void norm_queries_and_keys(int layer);
    void attention(int cache_layer);
    void add_output(const kernels::Matrix& weights, kernels::Activations x, const float* post_norm,
                    const kernels::Matrix* next, bool next_is_gated);

    kernels::Backend* backend_ = nullptr;
    LayerShape shape_;
    std::span<const DecoderLayer> layers_;
    std::vector<Vectors> vectors_;
    std::vector<kernels::DeviceBuffer> parameters_;
    kernels::DeviceRope rope_;

    int rows_ = 0;
    AttentionLayout layout_;
    int rows_at_once_ = 0;  ///< of an attention op, for which partial_ has memory
    kernels::DeviceArray<float> partial_;
    DecoderActivations activations_;
    kernels::GraphKeys graphs_;
    std::vector<std::int64_t> graph_shape_;  ///< of the pass
};

}  // namespace draftscope
