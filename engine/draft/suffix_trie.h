#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Counts every string of up to `depth` tokens in a set of texts, as a trie. A node is a string; its count is
/// the number of places at which it starts. Children are in the order in which SuffixDecoding tries them: by
/// falling count, equal counts as Arctic's implementation keeps them (arXiv 2411.04975, ArcticInference).
class SuffixTrie {
  public:
    static constexpr int root = 0;
    /// The nodes of a growing text's last 1, 2, ... tokens, the longest first.
    using Ends = std::vector<int>;

    /// Reserves memory for `tokens` tokens in all; more tokens grow it.
    SuffixTrie(int depth, int tokens);
    int depth() const { return depth_; }
    /// Appends one token to the text whose last strings are `ends`.
    void append(Ends& ends, TokenId token);
    /// Removes a whole text that was appended from its first token on.
    void remove(std::span<const TokenId> text);
    void clear();

    /// Returns the node of the string plus `token`, or -1.
    int child(int node, TokenId token) const;
    /// Returns the node of the whole string, or -1.
    int find(std::span<const TokenId> text) const;
    int first_child(int node) const { return nodes_[node].first_child; }  ///< -1 = none
    int next_sibling(int node) const { return nodes_[node].next; }        ///< -1 = none
    int count(int node) const { return nodes_[node].count; }
    TokenId token(int node) const { return nodes_[node].token; }

  private:
    struct Node {
        TokenId token = 0;
        int count = 0;  ///< 0 = removed, in no list
        int parent = -1, first_child = -1, last_child = -1, previous = -1, next = -1;
    };
    std::size_t find_entry(int parent, TokenId token) const;
    int add_child(int parent, TokenId token);
    void rehash();
    void raise(int node);
    void lower(int node);
    void unlink(int node);
    void insert_before(int node, int next, int parent);

    int depth_;
    std::vector<Node> nodes_;
    std::vector<int> entries_;  ///< hash table of (parent, token): node, or 0
};

}  // namespace draftscope
