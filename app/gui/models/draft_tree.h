#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"

/// Model of the Draft tree panel: one round's tree in columns, and why its accepted path ended.
namespace draftscope {

enum class TreeNodeKind {
    root,      ///< the last token committed before the round
    accepted,  ///< draft token accepted by the target
    rejected,  ///< draft token off the accepted path
    pending,   ///< drafted, not yet verified (round in flight)
    target,    ///< the target's token after the accepted path; not drafted
    lost,      ///< of the other tree alone, in a comparison
};

/// One of the target's most likely tokens.
struct TargetCandidate {
    TokenId token_id = no_token;
    std::string text;  ///< quoted
    double probability = 0;
    int rank = 0;  ///< 0 = first
};

struct TreeNode {
    int parent = -1;  ///< index into DraftTreeModel::nodes; -1 at the root
    int depth = 0;    ///< column
    float y = 0;      ///< centre of the node in rows; 0 is the top of the tree
    float rows = 1;   ///< reserved height in rows
    TreeNodeKind kind = TreeNodeKind::rejected;
    bool gained = false;  ///< not in the other tree, in a comparison
    bool beam = false;    ///< the drafter proposes candidates after it next (round in flight)
    TokenId token_id = no_token;
    std::string label;                         ///< for the node box: no quotes, spaces as dots
    std::string text;                          ///< quoted and made printable
    double edge_probability = 1;               ///< drafter's, given the parent; target's for `target`
    double path_probability = 1;               ///< drafter's, product from the root
    std::optional<double> target_probability;  ///< target's, given the parent
    std::optional<int> target_rank;            ///< 0 = the target's most likely token
    /// Of `target` only: whether the head's active set has it. Absent = not known.
    std::optional<bool> covered = true;
    TokenId next_token_id = no_token;  ///< target's token after this node
    std::string next_text;
    /// Where the drafter had that token, of `target` this token: "drafter's rank 8, p 0.030, pruned". "" =
    /// not known.
    std::string in_draft;
    std::vector<TargetCandidate> top;  ///< target's most likely tokens after this node; accepted path only
};

struct DraftTreeModel {
    std::string empty_text;  ///< shown if there is no tree
    std::string headline;    ///< why the accepted path ended, one sentence
    bool live = false;       ///< the round is in flight
    bool growing = false;    ///< in flight and not yet verified
    std::vector<TreeNode> nodes;
    int max_depth = 0;
    float height = 0;         ///< rows
    float path_rows = 1;      ///< rows reserved for each node of the accepted path
    int reserved_depth = 0;   ///< maximum depth of a round in flight: number of columns
    float reserved_rows = 0;  ///< rows reserved for levels not yet drafted
    int drafted = 0;
};

/// Builds a finished round's tree. `round_index`: into Snapshot::rounds; out of range gives the empty text.
DraftTreeModel build_draft_tree(const Snapshot& snapshot, std::size_t round_index);
/// Builds the tree of the round in flight, if any.
DraftTreeModel build_live_draft_tree(const Snapshot& snapshot);

/// How two trees from the same text differ, in drafted nodes.
struct TreeDifference {
    int kept = 0, gained = 0, lost = 0;
    int accepted = 0, other_accepted = 0;
};
/// Marks the nodes of `model` that `other` lacks, and adds those that `other` alone has. Nodes are the same
/// if the tokens from the root are.
TreeDifference compare_trees(DraftTreeModel& model, const DraftTreeModel& other);
/// Returns "3 accepted instead of 1; 5 nodes kept, 2 gained, 4 lost".
std::string to_text(const TreeDifference& difference);

/// Converts quoted text for a node box: without quotes, spaces as middle dots.
std::string box_label(std::string_view quoted);
/// Replaces characters without a glyph by their code points in all texts of the model.
void replace_missing_glyphs(DraftTreeModel& model, const std::function<bool(char32_t)>& has_glyph);
/// Returns a node's description in two lines, for the strip below the tree.
std::vector<std::string> describe_node(const DraftTreeModel& model, std::size_t index);

/// Returns true for the root, accepted drafts and the target's token.
bool is_on_path(const TreeNode& node);

/// Places the nodes so that no box covers another box or an edge. `path_rows`: height of the accepted path's
/// boxes, whose labels stay readable if a row is lower than a line of text.
void arrange_tree(DraftTreeModel& model, float path_rows);

/// A box to lay out.
struct TreeBox {
    int parent = -1;  ///< index of an earlier box; -1 = root
    int depth = 0;
    float rows = 1;   ///< height
    int columns = 1;  ///< number of depths it occupies, from `depth`
};
/// Compact tree layout; returns the centre of each box in rows. Children keep their order, boxes of one depth
/// do not overlap, and no edges cross (contours after Reingold and Tilford, 1981). Several roots are stacked.
std::vector<float> layout_tree(const std::vector<TreeBox>& boxes);
/// Stable layout of a tree that grows level by level. A node's position depends only on earlier levels and
/// likelier siblings, so new levels move nothing. The first child lies on its parent's row, the others below.
/// Boxes of one depth do not overlap, and no edges cross.
std::vector<float> layout_growing_tree(const std::vector<TreeBox>& boxes);

}  // namespace draftscope
