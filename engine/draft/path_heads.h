#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/draft/drafter.h"

namespace draftscope {

class PathHeadsOnDevice;

/// An LM head of one draft level: Medusa's and Hydra's published heads have one each.
struct LevelHead {
    const kernels::Matrix* matrix = nullptr;  ///< [V, d]
    const float* bias = nullptr;              ///< [V] or null
};

/// What tells Medusa and Hydra apart: the row that head `level` feeds to the LM head, from the target's
/// hidden of the last verified slot and the tokens of the path drafted so far (root first).
class PathHeads {
  public:
    virtual ~PathHeads() = default;
    virtual int heads() const = 0;
    /// False: one row serves every node of a level (Medusa's heads do not see the path).
    virtual bool sees_path() const = 0;
    /// paths [rows, level + 1] belong to the rows, level 0 having the root alone; hidden and out are [rows,
    /// d].
    virtual void rows(kernels::Exec& exec, int level, Rows<const float> hidden, Rows<const TokenId> paths,
                      Rows<float> out) = 0;
    virtual std::size_t weight_bytes(int level) const = 0;  ///< of that level's head, the LM head left out
    /// LM heads of the levels' own; empty = the run's draft head proposes. Drafters with their own draft with
    /// those alone.
    virtual std::span<const LevelHead> lm_heads() const { return {}; }
    virtual int hidden() const = 0;
    /// The heads on a device; null = they are in this memory.
    virtual PathHeadsOnDevice* on_device() = 0;
};

/// The round around such heads: level l's candidates come from head l, the tree is grown and re-ranked by
/// cumulative score as EAGLE-2's is (our default; the papers use trees fixed in advance).
std::unique_ptr<Drafter> make_path_head_drafter(std::unique_ptr<PathHeads> heads, const Target& target,
                                                std::string_view name);

/// out = shortcut x + silu(W x + b); without a shortcut x itself, whose first d columns count when it is
/// wider (the hidden in front of the embeddings).
struct ResidualBlock {
    kernels::Matrix weight;  ///< [d, inputs]
    std::vector<float> bias;
    kernels::Matrix shortcut;  ///< [d, inputs] or empty
    std::vector<float> shortcut_bias;
    std::size_t bytes() const { return weight.bytes() + shortcut.bytes(); }
};

/// The heads of a checkpoint, each its blocks in order.
struct PathHeadWeights {
    std::vector<std::vector<ResidualBlock>> heads;
    std::vector<kernels::Matrix> lm_heads;      ///< [V, d] per head where the checkpoint has them; else empty
    std::vector<std::vector<float>> lm_biases;  ///< [V] per head or empty
    std::size_t bytes(int head) const;
};
/// Views of the LM heads, as make_level_heads takes them.
std::vector<LevelHead> level_heads_of(const PathHeadWeights& weights);
/// The head 'full' over an LM head per level; `heads` outlives it.
std::unique_ptr<Head> make_level_heads(std::span<const LevelHead> heads, const Target& target);

enum class PathHeadKind { medusa, hydra };

/// Reads a published checkpoint: Medusa's `{i}.{block}.linear.weight` and `{i}.{blocks}.weight`, Hydra's
/// `hydra_mlp.{i}.{block}...` and `hydra_lm_head.{i}...`, or Medusa's names with Hydra's widths (the layout
/// of drafters trained with this project). The number of heads and blocks is what the file holds. An LM head
/// that equals the target's, as those of an untrained one do, is still kept.
Result<PathHeadWeights> load_path_heads(PathHeadKind kind, const std::string& place, const Target& target,
                                        kernels::Exec& exec);

/// Runs `blocks` over x [rows, inputs] into out [rows, d]. `scratch` is reused between calls.
void run_blocks(kernels::Exec& exec, std::span<const ResidualBlock> blocks, Rows<const float> x,
                std::vector<float>& scratch, Rows<float> out);

}  // namespace draftscope
