#include "engine/tree/draft_tree.h"

#include <algorithm>

namespace draftscope {
namespace {

/// Returns whether an earlier sibling of node `i` has the same token. One pass without early exit is
/// vectorised, which for trees of this size is faster than sorting.
bool has_duplicate_sibling(const DraftTree& tree, std::size_t i) {
    const int parent = tree.parents[i];
    const TokenId token = tree.tokens[i];
    int twins = 0;
    for (std::size_t j = static_cast<std::size_t>(parent) + 1; j < i; ++j)
        twins += static_cast<int>(tree.parents[j] == parent) & static_cast<int>(tree.tokens[j] == token);
    return twins > 0;
}

}  // namespace

DraftTree DraftTree::with_root(TokenId root) {
    DraftTree tree;
    tree.reset(root);
    return tree;
}

void DraftTree::reset(TokenId root, int nodes) {
    const auto begin = [nodes](auto& values, auto first) {
        values.clear();
        values.reserve(nodes);
        values.push_back(first);
    };
    begin(tokens, root);
    begin(parents, -1);
    begin(depths, 0);
    begin(logprobs, 0.0f);
    begin(cum_logprobs, 0.0f);
    mask.clear(nodes);
    beam.clear();
}

int DraftTree::add(TokenId token, int parent, float logprob) {
    const std::size_t p = parent;
    tokens.push_back(token);
    parents.push_back(parent);
    depths.push_back(depths[p] + 1);
    logprobs.push_back(logprob);
    cum_logprobs.push_back(cum_logprobs[p] + logprob);
    return size() - 1;
}

int DraftTree::max_depth() const {
    return depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
}

Status DraftTree::finish() {
    const std::size_t n = tokens.size();
    if (n == 0) return failed("draft tree: no root");
    if (n > static_cast<std::size_t>(max_tree_nodes))
        return failed("draft tree: {} nodes, the maximum is {}", n, max_tree_nodes);
    if (parents.size() != n || depths.size() != n || logprobs.size() != n || cum_logprobs.size() != n)
        return failed("draft tree: {} tokens but {} parents, {} depths, {} log-probs", n, parents.size(),
                      depths.size(), logprobs.size());
    if (parents[0] != -1 || depths[0] != 0) return failed("draft tree: node 0 is not a root");
    for (std::size_t i = 1; i < n; ++i) {
        const int parent = parents[i];
        if (parent < 0 || static_cast<std::size_t>(parent) >= i)
            return failed("draft tree: node {} has parent {}, which does not precede it", i, parent);
        if (depths[i] != depths[parent] + 1)
            return failed("draft tree: node {} has depth {} under a parent of depth {}", i, depths[i],
                          depths[parent]);
        if (has_duplicate_sibling(*this, i))
            return failed("draft tree: node {} has two children with token {}", parent, tokens[i]);
    }
    mask.build(parents);
    return {};
}

}  // namespace draftscope
