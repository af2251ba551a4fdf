#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/tree/ancestor_mask.h"
#include "engine/tree/length_policy.h"
#include "engine/tree/sampled_drafts.h"
#include "engine/tree/tree_choices.h"

namespace draftscope {

/// Token tree of one round as parallel arrays. Node 0 is the root (the last committed token), parents precede
/// their children, and siblings have distinct tokens.
struct DraftTree {
    std::vector<TokenId> tokens;
    std::vector<int> parents;         ///< -1 at the root
    std::vector<int> depths;          ///< 0 at the root
    std::vector<float> logprobs;      ///< over the head's support; 0 at the root
    std::vector<float> cum_logprobs;  ///< sum along the path
    AncestorMask mask;                ///< filled by finish()
    std::vector<int> beam = {};       ///< while it grows: nodes that get candidates next

    static DraftTree with_root(TokenId root);
    /// Resets the tree to its root and reserves memory for `nodes` nodes; keeps its buffers.
    void reset(TokenId root, int nodes = 1);
    /// Returns the index of the new node.
    int add(TokenId token, int parent, float logprob);
    /// Builds the mask and checks the invariants; an error names the invalid node.
    Status finish();
    int size() const { return static_cast<int>(tokens.size()); }
    int max_depth() const;
};

/// Node numbering of a dynamic tree. The orders have the same nodes but different rows and cache slots.
enum class TreeOrder {
    eagle,  ///< EAGLE's: by candidate, level by level
    fr,     ///< FR-Spec's engine: by descending cumulative score, ties to the earlier candidate
};

/// Tree shape in EAGLE-2's terms: depth = drafter forwards after the first; nodes include the root. A chain
/// of n drafts has depth = n - 1, topk = 1, nodes = n + 1.
struct TreeSpec {
    int depth = 3;
    int topk = 4;
    int nodes = 12;
    TreeOrder order = TreeOrder::eagle;
    /// Static tree; null = dynamic. With a static tree, depth, topk and nodes describe its size.
    std::shared_ptr<const TreeChoices> choices = nullptr;
    /// Chooses a chain's length in each round; null = always the spec's. The spec is then the longest chain.
    std::shared_ptr<const AdaptiveLength> adaptive = nullptr;
    bool operator==(const TreeSpec& other) const;
    int levels() const { return depth + 1; }
    /// Maximum number of nodes that candidates are drafted from, without the root: the KV slots that an
    /// expansion writes.
    int drafting_nodes() const { return choices ? choices->inner_nodes() : depth * topk; }
};
/// Upper bounds of nodes, levels and candidates per node in any spec (our defaults; buffers have these
/// sizes).
inline constexpr int max_tree_nodes = 1024;
inline constexpr int max_tree_levels = 64;
inline constexpr int max_tree_topk = 64;

/// Parses a tree spec: "depth=5,topk=10,nodes=60", "chain=6", or a preset of a paper such as "paper:fr-spec".
/// The first and the last form accept ",order=fr". Static trees: "choices:mc_sim_7b_63" or "choices:FILE",
/// with ",levels=3" for the first levels. Chains of adaptive length: "adaptive:POLICY[,key=value...]".
Result<TreeSpec> parse_tree_spec(std::string_view text);
/// Cuts `spec` to `levels` draft levels near the end of the context, where deeper drafts could not be
/// committed. Live and replayed rounds use this rule. Zero levels: nodes = 1, the root alone.
TreeSpec clip_tree(const TreeSpec& spec, int levels);
/// Returns the canonical text, which parses to the same spec: "depth=3,topk=4,nodes=12", "chain=6",
/// "choices:NAME" or "adaptive:POLICY".
std::string to_text(const TreeSpec& spec);

/// The lengths of one text's drafts, round by round. Live and replayed rounds use this.
class DraftLengths {
  public:
    DraftLengths() = default;
    explicit DraftLengths(const TreeSpec& spec)
        : policy_(spec.adaptive == nullptr ? nullptr : spec.adaptive->begin()) {}
    /// Returns the tree of the next round, where at most `levels` fit.
    TreeSpec next(const TreeSpec& spec, int levels) {
        return clip_tree(spec, policy_ == nullptr ? levels : std::min(levels, policy_->next()));
    }
    void update(int draft_tokens, int accepted) {
        if (policy_ != nullptr) policy_->update(draft_tokens, accepted);
    }

  private:
    std::unique_ptr<LengthPolicy> policy_;
};

}  // namespace draftscope
