#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transformer/kv_cache.h"
#include "kernels/matrix.h"

/// A llama decoder layer, shared by targets and by drafters that consist of such layers.
namespace draftscope {

struct LayerShape {
    int hidden = 0;    ///< d
    int heads = 0;     ///< H
    int kv_heads = 0;  ///< H_kv
    int head_dim = 0;  ///< hd
    int ffn = 0;       ///< d_ff
    float norm_eps = 1e-5f;

    int q_width() const { return heads * head_dim; }
    int kv_width() const { return kv_heads * head_dim; }
};

struct DecoderLayer {
    std::vector<float> attn_norm;  ///< [d]; empty if attention reads its input without a norm
    std::vector<float> ffn_norm;   ///< [d]; empty if the feed-forward reads its input without a norm
    kernels::Matrix qkv;           ///< [(H + 2 H_kv) hd, inputs]
    kernels::Matrix attn_out;      ///< [d, H hd]
    kernels::Matrix gate_up;       ///< [2 d_ff, d]
    kernels::Matrix down;          ///< [d, d_ff]

    // Only in some families; empty if absent.
    std::vector<float> qkv_bias;        ///< [(H + 2 H_kv) hd]
    std::vector<float> q_norm, k_norm;  ///< RMSNorm before rotation: [hd] per head, or the whole projection
    std::vector<float> attn_post_norm;  ///< [d], applied to attention's output before the residual add
    std::vector<float> ffn_post_norm;   ///< [d], applied to the feed-forward's output before the residual add

    std::size_t bytes() const;  ///< weights read by one pass
};

/// The rows of one pass through the layers, with each row's cache slot and visible slots. Memory is reused.
class DecoderBatch {
  public:
    void clear();
    /// Adds a row at `position` whose key is written to `slot` of `cache`. The row attends to slots 0 ..
    /// prefix - 1 and then to `tail` (in depth order); one of the two includes the row itself.
    void add_row(KvCache& cache, int slot, int position, int prefix, std::span<const int> tail = {});
    int rows() const { return static_cast<int>(entries_.size()); }
    /// Bytes of keys and values that one layer reads and writes for these rows.
    std::uint64_t kv_bytes(int kv_width, std::size_t value_bytes) const;

  private:
    struct Entry {
        KvCache* cache;
        int slot;
        int prefix;
        int ancestor_first;
        int ancestor_count;
    };
    std::vector<Entry> entries_;
    std::vector<int> positions_;
    std::vector<int> ancestor_slots_;

    friend class AttentionLayout;
    friend class Decoder;
};

}  // namespace draftscope
