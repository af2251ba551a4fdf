#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Limits of a model's sizes: larger than any model's, and small enough that products of two never overflow
/// 64 bits.
inline constexpr std::int64_t max_layers = 4096;
inline constexpr std::int64_t max_extent = std::int64_t{1} << 24;

/// RMSNorm of queries and keys, before rotation.
enum class QkNorm {
    none,
    per_head,  ///< each head separately, weights [hd] (Qwen 3)
    full,      ///< the whole projection at once, weights [H hd] and [H_kv hd] (OLMo 2)
};

/// A rotary embedding as a file describes it.
struct RopeConfig {
    float theta = 10000.0f;
    std::vector<float> divisors = {};  ///< head_dim / 2, of the base frequencies; empty = none
    float scale = 1;                   ///< of cos and sin: YaRN's attention factor
};

/// A ModelConfig::architecture for which Target::build() reads only the embedding and the LM head. Drafters
/// and heads need no more if the decode comes from a recording. Of the config, only hidden, vocab, context,
/// layers (the target's count) and tied_head are used. forward() and prefill() fail.
inline constexpr const char* head_only_architecture = "ends";

/// Shapes and constants of a llama-family decoder.
struct ModelConfig {
    std::string architecture;  ///< "llama", "qwen2", "qwen3", "olmo2"
    std::string name;          ///< display name, e.g. "SmolLM2-135M-Instruct"
    int layers = 0;            ///< L
    int hidden = 0;            ///< d
    int heads = 0;             ///< H
    int kv_heads = 0;          ///< H_kv
    int head_dim = 0;          ///< hd
    int ffn = 0;               ///< d_ff
    int vocab = 0;             ///< V, rows of the LM head
    int context = 0;           ///< maximum number of positions
    RopeConfig rotation;
    float norm_eps = 1e-5f;
    bool tied_head = false;   ///< LM head = token embedding
    bool qkv_bias = false;    ///< q, k and v projections add a bias
    bool post_norms = false;  ///< norms on the outputs of attention and feed-forward instead of their inputs
    QkNorm qk_norm = QkNorm::none;

    int q_norm_width() const { return qk_norm == QkNorm::full ? heads * head_dim : head_dim; }
    int k_norm_width() const { return qk_norm == QkNorm::full ? kv_heads * head_dim : head_dim; }
};

}  // namespace draftscope
