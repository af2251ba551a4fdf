#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"

/// What the Draft tree panel draws: one round's tree, laid out in columns, with the reason why it ended where
/// it did.
namespace draftscope {

enum class TreeNodeKind {
    root,      ///< the last token committed before the round
    accepted,  ///< a draft token that the target kept
    rejected,  ///< a draft token that was not on the target's way
    pending,   ///< drafted, not verified yet (live round)
    target,    ///< the target's own token at the end of the accepted path; in no draft
};

struct WantedToken {
    TokenId token_id = no_token;
    std::string text;  ///< quoted
    double probability = 0;
    int rank = 0;  ///< 0 = first
};

struct TreeNode {
    int node = 0;     ///< number in the round; -1 for the target's own token
    int parent = -1;  ///< index into DraftTreeModel::nodes; -1 at the root
    int depth = 0;    ///< column
    float y = 0;      ///< middle of the node in rows; 0 is the top of the tree
    float rows = 1;   ///< height kept for it
    TreeNodeKind kind = TreeNodeKind::rejected;
    TokenId token_id = no_token;
    std::string label;            ///< for the node box: no quotes, spaces shown as a dot
    std::string text;             ///< quoted and made printable
    double edge_probability = 1;  ///< by the drafter, given the parent; of the target for `target`
    double path_probability = 1;  ///< by the drafter, product from the root
    std::optional<double> target_probability;  ///< by the target, given the parent
    std::optional<int> target_rank;            ///< 0 = the target's first choice there
    bool covered = true;                       ///< `target` only: was it in the head's active set
    bool last_accepted = false;                ///< the round's tree ended being followed here
    TokenId next_token_id = no_token;          ///< what the target emits after this node
    std::string next_text;
    std::vector<WantedToken> top;  ///< the target's first choices after this node; accepted path only
};

struct TreeEdge {
    std::uint32_t from = 0, to = 0;  ///< indices into nodes
};

struct DraftTreeModel {
    std::string empty_text;  ///< said instead of a tree when there is none
    std::string headline;    ///< why the round ended where it did, one sentence
    bool live = false;       ///< the round is still in flight
    bool growing = false;    ///< ... and the target has not chosen yet
    std::vector<TreeNode> nodes;
    std::vector<TreeEdge> edges;
    int max_depth = 0;
    float height = 0;     ///< rows
    float path_rows = 1;  ///< rows kept for each node of the way that the text took
    int room_depth = 0;   ///< depth that a round in flight can reach: columns are kept for it
    float room_rows = 0;  ///< rows kept for the levels of a round in flight that are still to come
    int drafted = 0, accepted = 0, committed = 0;
};

/// `round_index` into Snapshot::rounds; out of range gives the empty text.
DraftTreeModel build_draft_tree(const Snapshot& snapshot, std::size_t round_index);
/// The round that the gate holds, when there is one.
DraftTreeModel build_live_draft_tree(const Snapshot& snapshot);

/// The quoted text as it stands in a node box, which delimits it already: no quotes, spaces as a middle dot.
std::string box_label(std::string_view quoted);
/// The token's text, or its id ("#123") where the vocabulary is unknown or has no bytes for it.
std::string token_label(const Snapshot& snapshot, const RunRow* run, TokenId token);
/// Characters without a glyph become their code points, in every text of the model.
void replace_missing_glyphs(DraftTreeModel& model, const std::function<bool(char32_t)>& has_glyph);
/// Two-line description of a node for the strip below the tree.
std::vector<std::string> describe_node(const DraftTreeModel& model, std::size_t index);

/// Root, accepted drafts and the target's own token: the way that the text took.
bool is_on_path(const TreeNode& node);

/// Places the nodes so that no box covers another one or an edge. `path_rows`: height of the boxes of the way
/// that the text took, whose labels stay readable where a row is lower than a line of text.
void arrange_tree(DraftTreeModel& model, float path_rows);

struct TreeBox {
    int parent = -1;  ///< index of an earlier box; -1 = root
    int depth = 0;
    float rows = 1;   ///< height
    int columns = 1;  ///< depths from its own on that it keeps free
};
/// Compact tree layout: the middle of each box in rows. Children keep their order, boxes of one depth do not
/// overlap, and no edges cross (contours after Reingold and Tilford 1981). Several roots are stacked.
std::vector<float> layout_tree(const std::vector<TreeBox>& boxes);
/// Layout of a tree that grows level by level: where a node lies depends on the levels before it and on its
/// likelier siblings, so nothing moves when another level comes. The first child lies beside its parent,
/// others below; boxes of one depth do not overlap, and no edges cross.
std::vector<float> layout_growing_tree(const std::vector<TreeBox>& boxes);

}  // namespace draftscope
