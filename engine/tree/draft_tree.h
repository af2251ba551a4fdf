#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/model/ancestor_mask.h"
#include "engine/tree/sampled_drafts.h"
#include "engine/tree/tree_choices.h"

namespace draftscope {

/// Token tree of one round as parallel arrays; node 0 is the root (the last committed token), parents come
/// before children, siblings have distinct tokens.
struct DraftTree {
    std::vector<TokenId> tokens;
    std::vector<int> parents;         ///< -1 at the root
    std::vector<int> depths;          ///< 0 at the root
    std::vector<float> logprobs;      ///< over the head's own support; 0 at the root
    std::vector<float> cum_logprobs;  ///< sum along the path
    AncestorMask mask;                ///< filled by finish()
    /// Sampled trees: what each node's children were drawn from, in the order of the nodes; null at nodes
    /// without children. Empty: the drafts are no draws but the draft distribution's best tokens.
    std::vector<std::shared_ptr<const DraftDistribution>> drawn_from;

    static DraftTree with_root(TokenId root);
    /// The root alone, with memory for `nodes` nodes; what the tree had is kept of it.
    void reset(TokenId root, int nodes = 1);
    /// Returns the new node's index.
    int add(TokenId token, int parent, float logprob);
    /// Builds the mask and checks the invariants; an impossible tree is an error naming the node.
    Status finish();
    int size() const { return static_cast<int>(tokens.size()); }
    int max_depth() const;
};

/// How the nodes of a dynamic tree are numbered (same nodes, another order of rows and cache slots).
enum class TreeOrder {
    eagle,  ///< EAGLE's: by candidate, level by level
    fr,     ///< FR-Spec's engine: by falling cumulative score, ties to the earlier candidate
};

/// EAGLE-2's meaning: depth = drafter forwards after the first, nodes include the root. A chain of n drafts
/// is depth = n - 1, topk = 1, nodes = n + 1.
struct TreeSpec {
    int depth = 3;
    int topk = 4;
    int nodes = 12;
    TreeOrder order = TreeOrder::eagle;
    /// A tree fixed in advance; null = grown by score. depth, topk and nodes then say how large it is.
    std::shared_ptr<const TreeChoices> choices = nullptr;
    bool operator==(const TreeSpec& other) const;
    /// Levels of candidates: depth + 1.
    int levels() const { return depth + 1; }
    /// Most nodes that are drafted from, the root left out: the KV slots an expansion writes.
    int drafting_nodes() const { return choices ? choices->inner_nodes() : depth * topk; }
};
/// Most nodes any spec may ask for, and most levels and candidates per node ("our default" bounds; buffers
/// are sized by them).
inline constexpr int max_tree_nodes = 1024;
inline constexpr int max_tree_levels = 64;
inline constexpr int max_tree_topk = 64;

/// Accepts "depth=5,topk=10,nodes=60", "chain=6", "paper:fr-spec" and the other presets (algorithms of the
/// papers), the first and third with ",order=fr"; "choices:mc_sim_7b_63" or "choices:FILE", with ",levels=3"
/// for the first levels alone.
Result<TreeSpec> parse_tree_spec(std::string_view text);
/// The one rule near the context's end, live and replayed: `spec` cut to `levels` levels of drafts, because
/// deeper ones could never be committed. No level left: nodes = 1, the root alone.
TreeSpec clip_tree(const TreeSpec& spec, int levels);
/// Canonical "depth=3,topk=4,nodes=12", "chain=6" or "choices:NAME"; reads back as the same spec.
std::string to_text(const TreeSpec& spec);

}  // namespace draftscope
