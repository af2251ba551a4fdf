#include "engine/tree/draft_tree.h"

#include <algorithm>

namespace draftscope {

DraftTree DraftTree::with_root(TokenId root) {
    DraftTree tree;
    tree.tokens.push_back(root);
    tree.parents.push_back(-1);
    tree.depths.push_back(0);
    tree.logprobs.push_back(0.0f);
    tree.cum_logprobs.push_back(0.0f);
    return tree;
}

int DraftTree::add(TokenId token, int parent, float logprob) {
    const auto p = static_cast<std::size_t>(parent);
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
        return failed("draft tree: {} nodes, at most {} are supported", n, max_tree_nodes);
    if (parents.size() != n || depths.size() != n || logprobs.size() != n || cum_logprobs.size() != n)
        return failed("draft tree: {} tokens but {} parents, {} depths, {} log-probs", n, parents.size(),
                      depths.size(), logprobs.size());
    if (parents[0] != -1 || depths[0] != 0) return failed("draft tree: node 0 is not a root");
    std::vector<std::pair<int, TokenId>> seen;
    seen.reserve(n);
    for (std::size_t i = 1; i < n; ++i) {
        const int parent = parents[i];
        if (parent < 0 || static_cast<std::size_t>(parent) >= i)
            return failed("draft tree: node {} has parent {}, which does not come before it", i, parent);
        if (depths[i] != depths[static_cast<std::size_t>(parent)] + 1)
            return failed("draft tree: node {} has depth {} under a parent of depth {}", i, depths[i],
                          depths[static_cast<std::size_t>(parent)]);
        seen.emplace_back(parent, tokens[i]);
    }
    std::sort(seen.begin(), seen.end());
    const auto twin = std::adjacent_find(seen.begin(), seen.end());
    if (twin != seen.end())
        return failed("draft tree: node {} has token {} twice among its children", twin->first, twin->second);
    mask = AncestorMask::from_parents(parents);
    return {};
}

}  // namespace draftscope
