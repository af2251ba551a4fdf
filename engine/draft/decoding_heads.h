#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/draft/head_rows.h"

namespace draftscope {

/// out = shortcut x + silu(W x + b). Without a shortcut, x itself is added; if x is wider than d, its first d
/// columns (the hidden before the embeddings).
struct ResidualBlock {
    kernels::Matrix weight;  ///< [d, inputs]
    std::vector<float> bias;
    kernels::Matrix shortcut;  ///< [d, inputs] or empty
    std::vector<float> shortcut_bias;
    std::size_t bytes() const { return weight.bytes() + shortcut.bytes(); }
};

/// The heads of a checkpoint; each is a list of blocks in order.
struct DecodingHeadWeights {
    std::vector<std::vector<ResidualBlock>> heads;
    /// [rows, d], one for each head or for all; none = the run's head.
    std::vector<kernels::Matrix> lm_heads;
    std::vector<std::vector<float>> lm_biases;  ///< [rows] per LM head or empty
    bool trims = true;  ///< token_map trims whole LM heads, unless the config says otherwise
    HeadRows vocab;     ///< tokens of the LM heads' rows
    Notes notes;
    std::size_t bytes(int head) const;
};

enum class DecodingHeadKind { medusa, hydra };

/// Reads a published checkpoint. Medusa: `{i}.{block}.linear.weight` and `{i}.{blocks}.weight`,
/// TensorRT-LLM's `{i}.medusa_layers.{block}.linear.weight` and `{i}.lm_head.weight`, or vLLM's
/// `blocks.{i}.layers.{block}.weight`, `lm_heads.{i}.weight` and `token_map`. Hydra:
/// `hydra_mlp.{i}.{block}...` and `hydra_lm_head.{i}...`, or Medusa's names with Hydra's widths (drafters
/// trained with this project). Any prefix is taken. The file defines the number of heads and blocks. An LM
/// head is kept even if it equals the target's.
Result<DecodingHeadWeights> load_decoding_heads(DecodingHeadKind kind, const std::string& drafter_source,
                                                const Target& target, kernels::Backend& backend);

}  // namespace draftscope
