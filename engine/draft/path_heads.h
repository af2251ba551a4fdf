#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/draft/drafter.h"

namespace draftscope {

/// What tells Medusa and Hydra apart: the row that head `level` feeds to the LM head, from the target's
/// hidden of the last verified slot and the tokens of the path drafted so far (root first).
class PathHeads {
  public:
    virtual ~PathHeads() = default;
    virtual int heads() const = 0;
    /// False: one row serves every node of a level (Medusa's heads do not see the path).
    virtual bool sees_path() const = 0;
    /// paths[r] belongs to row r; hidden and out are [rows, d]. Level 0 has the root alone as path.
    virtual void rows(kernels::Exec& exec, int level, Rows<const float> hidden,
                      std::span<const std::vector<TokenId>> paths, Rows<float> out) = 0;
    virtual void embed(std::span<const TokenId> tokens, Rows<float> out) const = 0;  ///< out is [tokens, d]
    virtual std::size_t weight_bytes(int level) const = 0;  ///< of that level's head, the LM head left out
    virtual int hidden() const = 0;
};

/// The round around such heads: level l's candidates come from head l, the tree is grown and re-ranked by
/// cumulative score as EAGLE-2's is (our default; the papers use trees fixed in advance).
std::unique_ptr<Drafter> make_path_head_drafter(std::unique_ptr<PathHeads> heads, std::string_view name);

/// Linear layers `{i}.0.linear.weight` [d, inputs(i)] and `.bias` [d] of a checkpoint folder's
/// model.safetensors.
struct PathHeadLayer {
    kernels::Matrix weight;
    std::vector<float> bias;
};
/// `inputs(i)` = columns of head i. Checks config.json's hidden_size; the number of heads is what the file
/// holds.
Result<std::vector<PathHeadLayer>> load_path_heads(const std::string& folder, const Target& target,
                                                   kernels::Exec& exec, int (*inputs)(int head, int hidden));

/// out = base + silu(W x + b), the residual block both papers use.
void residual_head(kernels::Exec& exec, const PathHeadLayer& layer, Rows<const float> x,
                   Rows<const float> base, Rows<float> out);

}  // namespace draftscope
