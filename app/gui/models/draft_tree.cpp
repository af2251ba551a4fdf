#include "app/gui/models/draft_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "capture/run_setting.h"
#include "capture/token_text.h"

namespace draftscope {
namespace {

/// Returns the length of a leading group such as "<F0 9F>"; 0 = none.
std::size_t hex_group(std::string_view text) {
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    std::size_t at = 0;
    do {
        if (at + 3 >= text.size() || text[at] != (at == 0 ? '<' : ' ') || !is_hex(text[at + 1]) ||
            !is_hex(text[at + 2]))
            return 0;
        at += 3;
    } while (text[at] != '>');
    return at + 1;
}

struct RoundView {
    const RunRow* run = nullptr;
    const RoundRow* round = nullptr;
    std::span<const NodeRow> nodes;
    std::span<const NodeTopRow> tops;
    std::span<const int> beam;
    bool live = false;
};

/// Nodes sorted with parents before children and siblings by descending probability.
struct OrderedNodes {
    std::vector<const NodeRow*> rows;
    std::vector<int> parents;  ///< index into rows
};

OrderedNodes order_nodes(std::span<const NodeRow> nodes) {
    OrderedNodes ordered;
    for (const NodeRow& node : nodes) ordered.rows.push_back(&node);
    std::ranges::stable_sort(ordered.rows, {}, [](const NodeRow* row) {
        const float logprob = std::isnan(row->draft_logprob) ? 0.0f : row->draft_logprob;
        return std::tuple(row->depth, row->parent, -logprob, row->node);
    });
    std::unordered_map<int, int> index_of;
    for (const NodeRow* row : ordered.rows) {
        const auto parent = index_of.find(row->parent);
        index_of.emplace(row->node, static_cast<int>(ordered.parents.size()));
        ordered.parents.push_back(parent == index_of.end() ? -1 : parent->second);
    }
    return ordered;
}

/// Returns the end of the accepted path: the deepest accepted node, otherwise the root.
int last_accepted_index(const OrderedNodes& ordered) {
    int last = ordered.rows.empty() ? -1 : 0;
    for (std::size_t i = 0; i < ordered.rows.size(); ++i)
        if (ordered.rows[i]->accepted && ordered.rows[i]->depth > ordered.rows[last]->depth)
            last = static_cast<int>(i);
    return last;
}

std::vector<TargetCandidate> target_candidates(const Snapshot& snapshot, const RoundView& view, int node) {
    std::vector<TargetCandidate> choices;
    for (const NodeTopRow& top : view.tops)
        if (top.node == node)
            choices.push_back(
                {top.token_id, token_label(snapshot, view.run, top.token_id), top.target_prob, top.rank});
    std::ranges::sort(choices, {}, &TargetCandidate::rank);
    return choices;
}

bool is_imported(const RoundView& view) {
    return view.run != nullptr && view.run->acceptance == imported_acceptance;
}

/// Returns false for the candidates that follow the drafted nodes of an imported round.
bool is_drafted(const RoundView& view, const NodeRow& row) {
    return !is_imported(view) || view.round->draft_tokens < 0 || row.node <= view.round->draft_tokens;
}

/// Says where the drafter had the target's token after a node; "" = not known, or not its only candidate.
std::string place_in_draft(const RoundView& view, const NodeRow& row) {
    if (!row.target_draft_rank || (*row.target_draft_rank == 1 && !row.target_draft_logprob)) return {};
    if (!row.target_draft_logprob)
        return fmt::format("not among the drafter's first {}", *row.target_draft_rank);
    const bool kept = std::ranges::any_of(view.nodes, [&](const NodeRow& child) {
        return child.parent == row.node && child.token_id == row.target_token_id;
    });
    return fmt::format("drafter's rank {}, p {:.3f}{}", *row.target_draft_rank + 1,
                       std::exp(static_cast<double>(*row.target_draft_logprob)), kept ? "" : ", pruned");
}

TreeNode make_node(const Snapshot& snapshot, const RoundView& view, const NodeRow& row, int parent,
                   bool verified) {
    TreeNode node;
    node.parent = parent;
    node.depth = row.depth;
    node.kind = parent < 0 && row.depth == 0        ? TreeNodeKind::root
                : row.accepted                      ? TreeNodeKind::accepted
                : is_drafted(view, row) && verified ? TreeNodeKind::rejected
                                                    : TreeNodeKind::pending;
    node.beam = std::ranges::count(view.beam, row.node) > 0;
    node.token_id = row.token_id;
    node.text = token_label(snapshot, view.run, row.token_id);
    node.label = box_label(node.text);
    node.edge_probability = std::exp(static_cast<double>(row.draft_logprob));
    node.path_probability = std::exp(static_cast<double>(row.cum_logprob));
    node.target_probability = row.target_prob;
    node.target_rank = row.target_rank;
    node.next_token_id = row.target_token_id;
    if (row.target_token_id != no_token)
        node.next_text = token_label(snapshot, view.run, row.target_token_id);
    node.in_draft = place_in_draft(view, row);
    if (node.kind == TreeNodeKind::root || node.kind == TreeNodeKind::accepted)
        node.top = target_candidates(snapshot, view, row.node);
    return node;
}

/// Makes a node of the target's token after the last accepted node.
TreeNode make_target_node(const TreeNode& last, const NodeRow& row, int parent) {
    TreeNode node;
    node.parent = parent;
    node.depth = last.depth + 1;
    node.kind = TreeNodeKind::target;
    node.token_id = row.target_token_id;
    node.text = last.next_text;
    node.label = box_label(node.text);
    node.edge_probability = row.target_token_prob.value_or(std::numeric_limits<float>::quiet_NaN());
    node.path_probability = 0;
    if (row.target_token_prob) node.target_probability = *row.target_token_prob;
    for (const TargetCandidate& choice : last.top)
        if (choice.token_id == row.target_token_id) node.target_rank = choice.rank;
    node.covered = row.target_covered;
    node.in_draft = last.in_draft;
    return node;
}

std::string target_token_text(const TreeNode& target) {
    std::string text = target.text;
    if (target.target_probability && target.target_rank)
        text += fmt::format(" (p {:.2f}, rank {})", *target.target_probability, *target.target_rank + 1);
    else if (target.target_probability)
        text += fmt::format(" (p {:.2f})", *target.target_probability);
    return text;
}

/// Says why the drafter does not have the target's token in its tree; "" = not known.
std::string why_not_drafted(const TreeNode& target) {
    if (target.covered == false) return ", which is not in the head's active set";
    return target.in_draft.empty() ? "" : ", " + target.in_draft;
}

std::string accepted_text(int accepted, int depth) {
    if (accepted >= depth) return fmt::format("fully accepted (depth {})", accepted);
    return fmt::format("accepted to depth {} of {}", accepted, depth);
}

/// Returns the likeliest drafted child of `parent`, or null.
const TreeNode* best_child(const DraftTreeModel& model, int parent) {
    const TreeNode* best = nullptr;
    for (const TreeNode& node : model.nodes)
        if (node.parent == parent && node.kind != TreeNodeKind::target &&
            (model.live || node.kind != TreeNodeKind::pending) &&
            (best == nullptr || node.edge_probability > best->edge_probability))
            best = &node;
    return best;
}

std::string why(const DraftTreeModel& model, const RoundView& view, int last, int draft_depth) {
    if (model.live && view.nodes.size() <= 1) return "round in flight: nothing drafted yet";
    const TreeNode& end = model.nodes[last];
    const auto target = std::ranges::find(model.nodes, TreeNodeKind::target, &TreeNode::kind);
    if (model.live && target == model.nodes.end())
        return fmt::format("round in flight: {} drafted to depth {}, not yet verified{}", model.drafted,
                           draft_depth, view.beam.empty() ? "" : "; the marked ones are drafted from next");
    if (is_imported(view) && view.round->draft_tokens != model.drafted)
        return fmt::format(
            "{} accepted of {}; the rest of the draft is not known", view.round->accepted,
            view.round->draft_tokens < 0 ? "an unknown number" : std::to_string(view.round->draft_tokens));
    if (model.drafted == 0)
        return target == model.nodes.end()
                   ? std::string("nothing was drafted in this round")
                   : fmt::format("nothing was drafted: the target decoded {}", target_token_text(*target));
    if (target == model.nodes.end()) return accepted_text(end.depth, draft_depth);
    const std::string clipped = model.live || !view.round->clipped
                                    ? ""
                                    : fmt::format("; output ended, {} committed", view.round->committed);
    const bool drafted_too = std::ranges::any_of(model.nodes, [&](const TreeNode& node) {
        return node.parent == last && node.kind != TreeNodeKind::target && node.token_id == target->token_id;
    });
    if (drafted_too && !clipped.empty())
        return fmt::format("{}{}", accepted_text(end.depth, draft_depth), clipped);
    const TreeNode* offered = best_child(model, last);
    if (offered == nullptr)
        return fmt::format("{}; bonus token {}{}{}{}", accepted_text(end.depth, draft_depth),
                           target_token_text(*target), target->in_draft.empty() ? "" : ", ", target->in_draft,
                           clipped);
    return fmt::format(
        "rejected at depth {}: the target chose {}{}; {}'s top token was {}{}{}", end.depth + 1,
        target_token_text(*target), why_not_drafted(*target),
        view.round->drafter.empty() ? "the drafter" : view.round->drafter, offered->text,
        std::isnan(offered->edge_probability) ? "" : fmt::format(" (p {:.2f})", offered->edge_probability),
        clipped);
}

/// Puts the target's token before its siblings, so that the accepted path is the topmost.
std::vector<int> layout_order(const std::vector<int>& parents, int target_index) {
    std::vector<int> order(parents.size());
    std::iota(order.begin(), order.end(), 0);
    if (target_index < 0) return order;
    const int parent = parents[target_index];
    order.pop_back();
    const auto place = std::ranges::find_if(order, [&](int i) { return i > parent && parents[i] == parent; });
    order.insert(place, target_index);
    return order;
}

DraftTreeModel build(const Snapshot& snapshot, const RoundView& view) {
    DraftTreeModel model;
    model.live = view.live;
    const OrderedNodes ordered = order_nodes(view.nodes);
    const int last = last_accepted_index(ordered);
    if (last < 0) {
        model.empty_text = view.live ? "The round has started. No token is drafted yet."
                                     : "This round has no stored draft tree.";
        if (is_imported(view))
            model.empty_text =
                fmt::format("{} drafts were accepted. The imported file does not say which tokens.",
                            view.round->accepted);
        return model;
    }
    const NodeRow& end = *ordered.rows[last];
    const bool verified = !view.live || end.target_token_id != no_token;
    model.growing = !verified;
    int draft_depth = 0;
    for (std::size_t i = 0; i < ordered.rows.size(); ++i) {
        model.nodes.push_back(make_node(snapshot, view, *ordered.rows[i], ordered.parents[i], verified));
        if (is_drafted(view, *ordered.rows[i])) draft_depth = std::max(draft_depth, ordered.rows[i]->depth);
    }
    model.drafted = -1;
    for (const NodeRow* row : ordered.rows) model.drafted += is_drafted(view, *row) ? 1 : 0;
    if (verified && end.target_token_id != no_token)
        model.nodes.push_back(make_target_node(TreeNode(model.nodes[last]), end, last));
    arrange_tree(model, 1);
    model.headline = why(model, view, last, draft_depth);
    return model;
}

/// Outline of a subtree: the minimum and maximum y of its boxes at each depth.
struct Contour {
    int depth = 0;  ///< of the first entry
    std::vector<float> top, bottom;
};

/// Returns how far `next` must move down to clear `above`.
float separation(const Contour& above, const Contour& next) {
    float shift = 0;
    bool met = false;
    for (std::size_t i = 0; i < next.top.size(); ++i) {
        const int at = next.depth + static_cast<int>(i) - above.depth;
        if (at < 0 || at >= static_cast<int>(above.bottom.size())) continue;
        const float needed = above.bottom[at] - next.top[i];
        shift = met ? std::max(shift, needed) : needed;
        met = true;
    }
    return shift;
}

/// Returns the boxes without a parent, and the children of each box.
std::pair<std::vector<std::size_t>, std::vector<std::vector<std::size_t>>> roots_and_children(
    const std::vector<TreeBox>& boxes) {
    std::vector<std::size_t> roots;
    std::vector<std::vector<std::size_t>> children(boxes.size());
    for (std::size_t i = 0; i < boxes.size(); ++i)
        (boxes[i].parent < 0 ? roots : children[boxes[i].parent]).push_back(i);
    return {std::move(roots), std::move(children)};
}

void merge(Contour& into, const Contour& next, float shift) {
    if (into.top.empty()) into.depth = next.depth;
    for (std::size_t i = 0; i < next.top.size(); ++i) {
        const std::size_t at = next.depth + static_cast<int>(i) - into.depth;
        if (at >= into.top.size()) {
            into.top.push_back(next.top[i] + shift);
            into.bottom.push_back(next.bottom[i] + shift);
        } else {
            into.top[at] = std::min(into.top[at], next.top[i] + shift);
            into.bottom[at] = std::max(into.bottom[at], next.bottom[i] + shift);
        }
    }
}

/// Returns the maximum number of nodes at one depth of the run's newest tree; without a tree, its number of
/// levels.
float max_level_rows(const Snapshot& snapshot, RowId run_id, int levels) {
    if (snapshot.rounds.empty() || snapshot.rounds.back().row.run_id != run_id)
        return static_cast<float>(levels);
    const std::shared_ptr<const RoundTree> tree = snapshot.tree(snapshot.rounds.size() - 1);
    std::unordered_map<int, int> nodes;
    int max_nodes = 1;
    for (const NodeRow& node : tree->nodes) max_nodes = std::max(max_nodes, ++nodes[node.depth]);
    return static_cast<float>(max_nodes);
}

}  // namespace

std::vector<float> layout_tree(const std::vector<TreeBox>& boxes) {
    const std::size_t n = boxes.size();
    const auto [roots, children] = roots_and_children(boxes);
    std::vector<float> offset(n, 0);  // from the parent's y
    std::vector<Contour> contours(n);
    for (std::size_t i = n; i-- > 0;) {
        Contour below;
        std::vector<float> shifts;
        for (const std::size_t child : children[i]) {
            const float shift = below.top.empty() ? 0 : separation(below, contours[child]);
            merge(below, contours[child], shift);
            shifts.push_back(shift);
            contours[child] = {};
        }
        const float middle = shifts.empty() ? 0 : (shifts.front() + shifts.back()) / 2;
        for (std::size_t c = 0; c < shifts.size(); ++c) offset[children[i][c]] = shifts[c] - middle;
        Contour& own = contours[i];
        own.depth = boxes[i].depth;
        own.top.assign(boxes[i].columns, -boxes[i].rows / 2);
        own.bottom.assign(boxes[i].columns, boxes[i].rows / 2);
        merge(own, below, -middle);
    }

    std::vector<float> y(n, 0);
    float bottom = 0;  // of the roots so far
    for (const std::size_t root : roots) {
        const Contour& contour = contours[root];
        y[root] = bottom - *std::min_element(contour.top.begin(), contour.top.end());
        bottom = y[root] + *std::max_element(contour.bottom.begin(), contour.bottom.end());
    }
    for (std::size_t i = 0; i < n; ++i)
        if (boxes[i].parent >= 0) y[i] = y[boxes[i].parent] + offset[i];
    return y;
}

std::vector<float> layout_growing_tree(const std::vector<TreeBox>& boxes) {
    auto [level, children] = roots_and_children(boxes);
    std::vector<float> y(boxes.size(), 0);
    std::vector<float> free_from;  // by depth
    while (!level.empty()) {
        std::vector<std::size_t> next;
        for (const std::size_t i : level) {
            const TreeBox& box = boxes[i];
            const std::size_t depth = box.depth;
            if (free_from.size() <= depth) free_from.resize(depth + 1, 0);
            const float parent_y = box.parent < 0 ? 0 : y[box.parent];
            y[i] = std::max(free_from[depth] + box.rows / 2, parent_y);
            free_from[depth] = y[i] + box.rows / 2;
            next.insert(next.end(), children[i].begin(), children[i].end());
        }
        level = std::move(next);
    }
    return y;
}

void arrange_tree(DraftTreeModel& model, float path_rows) {
    const std::size_t n = model.nodes.size();
    std::vector<int> parents(n);
    for (std::size_t i = 0; i < n; ++i) parents[i] = model.nodes[i].parent;
    const bool has_target = n > 0 && model.nodes.back().kind == TreeNodeKind::target;
    const std::vector<int> order = layout_order(parents, has_target ? static_cast<int>(n) - 1 : -1);
    std::vector<int> place(n);
    for (std::size_t i = 0; i < n; ++i) place[order[i]] = static_cast<int>(i);
    std::vector<TreeBox> boxes;
    for (const int from : order) {
        TreeNode& node = model.nodes[from];
        node.rows = is_on_path(node) ? path_rows : 1;
        // The target's token blocks its row in the next column, too, so that no sibling's edge crosses it.
        const int columns = node.kind == TreeNodeKind::target ? 2 : 1;
        boxes.push_back({node.parent < 0 ? -1 : place[node.parent], node.depth, node.rows, columns});
    }
    const std::vector<float> y = model.growing ? layout_growing_tree(boxes) : layout_tree(boxes);
    model.path_rows = path_rows;
    model.height = 0;
    for (std::size_t i = 0; i < n; ++i) {
        TreeNode& node = model.nodes[order[i]];
        node.y = y[i];
        model.max_depth = std::max(model.max_depth, node.depth);
        model.height = std::max(model.height, node.y + node.rows / 2);
    }
}

bool is_on_path(const TreeNode& node) {
    return node.kind == TreeNodeKind::root || node.kind == TreeNodeKind::accepted ||
           node.kind == TreeNodeKind::target;
}

DraftTreeModel build_draft_tree(const Snapshot& snapshot, std::size_t round_index) {
    DraftTreeModel model;
    if (round_index >= snapshot.rounds.size()) {
        model.empty_text =
            !snapshot.rounds.empty() ? "Select a round to see its draft tree."
            : !snapshot.runs.empty() && snapshot.runs.back().acceptance == imported_acceptance
                ? "The imported file has sums, not single rounds."
                : "No rounds yet. Press Run, or open a capture, to see what the drafter proposed.";
        return model;
    }
    const RoundEntry& entry = snapshot.rounds[round_index];
    RoundView view;
    view.run = snapshot.run(entry.row.run_id);
    view.round = &entry.row;
    const std::shared_ptr<const RoundTree> tree = snapshot.tree(round_index);
    if (!tree->problem.empty()) {
        model.empty_text = "This round's tree cannot be read: " + tree->problem;
        return model;
    }
    view.nodes = tree->nodes;
    view.tops = tree->tops;
    return build(snapshot, view);
}

DraftTreeModel build_live_draft_tree(const Snapshot& snapshot) {
    DraftTreeModel model;
    if (!snapshot.live || !snapshot.live->active) {
        model.empty_text = "No round is in flight.";
        return model;
    }
    const RoundRecord& partial = snapshot.live->partial;
    RoundView view;
    view.live = true;
    view.run = snapshot.run(partial.round.run_id);
    view.round = &partial.round;
    view.nodes = partial.nodes;
    view.tops = partial.tops;
    view.beam = snapshot.live->beam;
    model = build(snapshot, view);
    model.reserved_depth = snapshot.live->levels;
    if (model.growing)
        model.reserved_rows = max_level_rows(snapshot, partial.round.run_id, snapshot.live->levels);
    return model;
}

namespace {

bool is_drafted(const TreeNode& node) {
    return node.parent >= 0 && node.kind != TreeNodeKind::target && node.kind != TreeNodeKind::lost;
}

/// Returns the tokens from the root to each node.
std::vector<std::vector<TokenId>> paths_of(const DraftTreeModel& model) {
    std::vector<std::vector<TokenId>> paths;
    for (const TreeNode& node : model.nodes) {
        paths.push_back(node.parent < 0 ? std::vector<TokenId>()
                                        : paths[static_cast<std::size_t>(node.parent)]);
        if (node.parent >= 0) paths.back().push_back(node.token_id);
    }
    return paths;
}

int accepted_in(const DraftTreeModel& model) {
    return static_cast<int>(std::ranges::count(model.nodes, TreeNodeKind::accepted, &TreeNode::kind));
}

}  // namespace

TreeDifference compare_trees(DraftTreeModel& model, const DraftTreeModel& other) {
    TreeDifference out{.accepted = accepted_in(model), .other_accepted = accepted_in(other)};
    if (model.nodes.empty() || other.nodes.empty()) return out;
    std::map<std::vector<TokenId>, int> places;  // of the drafted nodes and the root
    const std::vector<std::vector<TokenId>> paths = paths_of(model), others = paths_of(other);
    for (std::size_t i = 0; i < model.nodes.size(); ++i)
        if (i == 0 || is_drafted(model.nodes[i])) places.emplace(paths[i], static_cast<int>(i));
    std::set<std::vector<TokenId>> theirs;
    for (std::size_t i = 1; i < other.nodes.size(); ++i)
        if (is_drafted(other.nodes[i])) theirs.insert(others[i]);
    for (std::size_t i = 1; i < model.nodes.size(); ++i) {
        if (!is_drafted(model.nodes[i])) continue;
        model.nodes[i].gained = !theirs.contains(paths[i]);
        ++(model.nodes[i].gained ? out.gained : out.kept);
    }
    // The target's token stays last.
    std::optional<TreeNode> target;
    if (model.nodes.back().kind == TreeNodeKind::target) {
        target = std::move(model.nodes.back());
        model.nodes.pop_back();
    }
    for (std::size_t i = 1; i < other.nodes.size(); ++i) {
        if (!is_drafted(other.nodes[i]) || places.contains(others[i])) continue;
        const std::vector<TokenId> above(others[i].begin(), others[i].end() - 1);
        TreeNode node = other.nodes[i];
        node.parent = places.at(above);
        node.kind = TreeNodeKind::lost;
        places.emplace(others[i], static_cast<int>(model.nodes.size()));
        model.nodes.push_back(std::move(node));
        ++out.lost;
    }
    if (target) model.nodes.push_back(std::move(*target));
    arrange_tree(model, 1);
    return out;
}

std::string to_text(const TreeDifference& difference) {
    return fmt::format("{} accepted instead of {}; {} nodes kept, {} gained, {} lost", difference.accepted,
                       difference.other_accepted, difference.kept, difference.gained, difference.lost);
}

std::string box_label(std::string_view quoted) {
    if (quoted.size() < 2 || quoted.front() != '"') return std::string(quoted);
    quoted = quoted.substr(1, quoted.size() - 2);
    std::string out;
    while (!quoted.empty()) {
        const std::size_t length = std::max<std::size_t>(hex_group(quoted), 1);
        out += length == 1 && quoted.front() == ' ' ? "\xC2\xB7" : quoted.substr(0, length);
        quoted.remove_prefix(length);
    }
    return out;
}

void replace_missing_glyphs(DraftTreeModel& model, const std::function<bool(char32_t)>& has_glyph) {
    const auto replace = [&](std::string& text) { text = replace_missing_glyphs(text, has_glyph); };
    replace(model.headline);
    for (TreeNode& node : model.nodes) {
        replace(node.label);
        replace(node.text);
        replace(node.next_text);
        for (TargetCandidate& choice : node.top) replace(choice.text);
    }
}

std::vector<std::string> describe_node(const DraftTreeModel& model, std::size_t index) {
    const TreeNode& node = model.nodes[index];
    static constexpr const char* kinds[] = {"root (last committed token)",
                                            "accepted",
                                            "rejected",
                                            "not yet verified",
                                            "target token (not drafted)",
                                            "lost: not drafted with this setting"};
    const bool candidate = node.kind == TreeNodeKind::pending && !model.live;
    std::string first =
        fmt::format("{}  id {}  depth {}  {}", node.text, node.token_id, node.depth,
                    candidate ? "the drafter's candidate, not drafted" : kinds[static_cast<int>(node.kind)]);
    std::string second;
    const auto gap = [&] { return second.empty() ? "" : "   "; };
    if (node.kind == TreeNodeKind::target)
        second = !node.covered           ? "not drafted"
                 : !*node.covered        ? "outside the head's active set: it could not be drafted"
                 : node.in_draft.empty() ? "in the head's active set, but not drafted"
                                         : "in the head's active set, " + node.in_draft;
    else if (node.kind != TreeNodeKind::root && std::isnan(node.edge_probability))
        second = "drafter p not known";
    else if (node.kind != TreeNodeKind::root)
        second =
            fmt::format("drafter p {:.3f}, whole path {:.4f}", node.edge_probability, node.path_probability);
    if (model.growing && node.kind == TreeNodeKind::pending)
        second += fmt::format(", score {:.2f}{}", std::log(node.path_probability),
                              node.beam ? "   in the beam: drafted from next" : "");
    if (node.target_probability) second += fmt::format("{}target p {:.3f}", gap(), *node.target_probability);
    if (node.target_rank) second += fmt::format(" (rank {})", *node.target_rank + 1);
    if (!node.next_text.empty()) second += fmt::format("{}target's next token {}", gap(), node.next_text);
    if (!node.next_text.empty() && !node.in_draft.empty()) second += " (" + node.in_draft + ")";
    return {first, second};
}

}  // namespace draftscope
