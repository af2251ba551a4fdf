#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/transformer/decoder_layer.h"
#include "kernels/device_array.h"

namespace draftscope {

/// LayerPass on a device: what a pass over decoder layers asks of it, with all activations in its memory.
/// The layers' matrices lie there already; the decoder adds their vectors and the rotation table. One pass at
/// a time; the caller holds Device::busy() around it.
class DeviceDecoder {
  public:
    /// `layers` and `rope` stay alive as long as the decoder. `input_width` is what attention of the first
    /// layer reads, when that is not the hidden size (EAGLE-3).
    Status prepare(kernels::Device& device, const LayerShape& shape, const kernels::RopeTable& rope,
                   std::span<const DecoderLayer> layers, int input_width = 0);
    bool ready() const { return device_ != nullptr; }
    kernels::Device& device() { return *device_; }

    /// A vector that the caller needs there, such as a norm; null when memory is out.
    const float* keep(std::span<const float> values);

    /// Places the rows of `batch`, whose caches lie on the device.
    Status begin(const DecoderBatch& batch);
    /// The rows' tree ancestors come from an array there, [as begin() placed them], instead of the batch's.
    void use_tails(const std::int32_t* there) { places_.ancestor_slots = there; }
    /// So do the rows' positions and how many ancestors they have; as many as begin() was told at most.
    void use_places(const kernels::TreeRows& there) {
        places_.position = there.positions;
        places_.ancestor_count = there.ancestor_counts;
        places_.ancestor_slots = there.ancestor_slots;
    }
    /// Memory for passes of `rows` rows: smaller ones then leave what others wrote. False when there is none.
    bool make_room(int rows) { return reserve(rows); }
    int rows() const { return rows_; }
    /// [rows, hidden] f32: what the layers add to.
    float* residual() const { return residual_.as<float>(); }
    /// [rows, padded_columns(input width or hidden)]: scratch for what a matmul reads.
    kernels::half_t* input() const { return input_.as<kernels::half_t>(); }
    int hidden_stride() const { return kernels::padded_columns(shape_.hidden); }

    /// residual += W_o attention(W_qkv x); x is bf16 with the stride of the layer's qkv matrix.
    void attend(int layer, int cache_layer, const kernels::half_t* x);
    void feed_forward(int layer);
    /// A whole layer.
    void run(int layer);
    /// input() = the residual, normed by `norm` or plain when null.
    void take_residual(const float* norm);

    /// To be called when memory that such a pass names has moved.
    void forget_graphs() { keys_.clear(); }
    /// Replays `work`, which asks for the ops of this pass, as a graph when an equal pass was made before.
    /// `extra` tells passes apart that do more than run the rows through the layers.
    void replay(std::span<const int> extra, FunctionRef<void()> work);

  private:
    struct Vectors {
        const float* attn_norm = nullptr;
        const float* ffn_norm = nullptr;
        const float* qkv_bias = nullptr;
        const float* q_norm = nullptr;
        const float* k_norm = nullptr;
        const float* attn_post_norm = nullptr;
        const float* ffn_post_norm = nullptr;
        int q_norm_width = 0, k_norm_width = 0;
    };
    bool reserve(int rows);
    void list_sequences(const DecoderBatch& batch);
    void list_tiles();
    bool upload_places(const DecoderBatch& batch);
    void attention(int cache_layer);
    void add_output(const kernels::Matrix& weights, const kernels::half_t* x, const float* post_norm);

    kernels::Device* device_ = nullptr;
    LayerShape shape_;
    int input_width_ = 0;
    std::span<const DecoderLayer> layers_;
    std::vector<Vectors> vectors_;
    std::vector<kernels::DeviceBuffer> kept_;
    const float* cos_ = nullptr;
    const float* sin_ = nullptr;

    int rows_ = 0, capacity_ = 0;
    int blocks_ = 0;                           ///< of attention, a power of two
    std::vector<std::int32_t> row_sequences_;  ///< index of each row's sequence
    std::vector<std::int32_t> tiles_;          ///< first row, rows
    std::vector<kernels::KvPlanes> caches_;    ///< of the sequences
    kernels::AttentionBatch places_;
    kernels::DeviceStruct d_places_;  ///< the arrays of places_, other than the caches
    kernels::DeviceArray<kernels::KvPlanes> d_caches_;
    kernels::DeviceArray<float> partial_;
    kernels::DeviceBuffer residual_, input_, qkv_, mixed_, gate_up_, active_, projected_;
    std::map<std::vector<std::int64_t>, std::uint64_t> keys_;  ///< of graphs, by what tells passes apart
};

}  // namespace draftscope
