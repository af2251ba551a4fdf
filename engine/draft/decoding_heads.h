#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/draft/head_rows.h"

namespace draftscope {

class PathHeads;

/// The LM head of one draft level: published Medusa and Hydra checkpoints have one per level.
struct LevelLmHead {
    const kernels::Matrix* matrix = nullptr;  ///< [V, d]
    const float* bias = nullptr;              ///< [V] or null
    std::span<const TokenId> ids = {};        ///< token of each row, ascending; empty = row i is token i
};

/// The heads of Medusa or Hydra. Head `level` computes the LM head's input from the target's hidden of the
/// last verified slot. Hydra also reads the tokens of the drafted path, root first.
class DecodingHeads {
  public:
    virtual ~DecodingHeads() = default;
    virtual int heads() const = 0;
    /// False: one row serves every node of a level (Medusa's heads do not depend on the path).
    virtual bool uses_path() const = 0;
    virtual std::size_t weight_bytes(int level) const = 0;  ///< of that level's head, without the LM head
    /// LM heads per level; empty = the run's draft head proposes. If present, they replace the run's head.
    virtual std::span<const LevelLmHead> lm_heads() const { return {}; }
    virtual int hidden() const = 0;
    virtual const Notes& notes() const = 0;
    /// Computes the rows of a level.
    virtual PathHeads& pass() = 0;
};

/// Creates the drafter around such heads: level l's candidates come from head l. The tree is expanded and
/// reranked by cumulative score as in EAGLE-2 (our default; the papers use static trees).
std::unique_ptr<Drafter> make_decoding_head_drafter(std::unique_ptr<DecodingHeads> heads,
                                                    const Target& target, std::string_view name);

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
/// Views of the LM heads for make_level_lm_heads().
std::vector<LevelLmHead> level_lm_heads(const DecodingHeadWeights& weights);
/// Creates the head `full` with one LM head per level; `heads` must outlive it.
std::unique_ptr<LmHead> make_level_lm_heads(std::span<const LevelLmHead> heads, const Target& target);

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
