#include "engine/draft/suffix_trie.h"

#include <algorithm>
#include <bit>

namespace draftscope {

SuffixTrie::SuffixTrie(int depth, int tokens) : depth_(depth) {
    const std::size_t nodes = 1 + static_cast<std::size_t>(depth) * std::max(tokens, 8);
    nodes_.reserve(nodes);
    entries_.resize(std::bit_ceil(2 * nodes));
    nodes_.emplace_back();
}

void SuffixTrie::clear() {
    nodes_.resize(1);
    nodes_[root] = {};
    std::ranges::fill(entries_, 0);
}

std::size_t SuffixTrie::find_entry(int parent, TokenId token) const {
    const std::size_t mask = entries_.size() - 1;
    std::uint64_t hash = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent)) << 32) |
                         static_cast<std::uint32_t>(token);
    hash *= 0x9e3779b97f4a7c15u;
    std::size_t at = static_cast<std::size_t>(hash ^ (hash >> 32)) & mask;
    while (entries_[at] != 0) {
        const Node& node = nodes_[entries_[at]];
        if (node.parent == parent && node.token == token) break;
        at = (at + 1) & mask;
    }
    return at;
}

int SuffixTrie::child(int node, TokenId token) const {
    const int found = entries_[find_entry(node, token)];
    return found != 0 && nodes_[found].count > 0 ? found : -1;
}

int SuffixTrie::find(std::span<const TokenId> text) const {
    int node = root;
    for (const TokenId token : text) {
        node = child(node, token);
        if (node < 0) break;
    }
    return node;
}

/// Returns the child, which may be new with count 0 and in no list.
int SuffixTrie::add_child(int parent, TokenId token) {
    const std::size_t entry = find_entry(parent, token);
    if (entries_[entry] != 0) return entries_[entry];
    const int added = static_cast<int>(nodes_.size());
    nodes_.push_back({.token = token, .parent = parent});
    entries_[entry] = added;
    if (2 * nodes_.size() > entries_.size()) rehash();
    return added;
}

void SuffixTrie::rehash() {
    entries_.assign(2 * entries_.size(), 0);
    for (int node = 1; node < static_cast<int>(nodes_.size()); ++node)
        entries_[find_entry(nodes_[node].parent, nodes_[node].token)] = node;
}

void SuffixTrie::append(Ends& ends, TokenId token) {
    if (static_cast<int>(ends.size()) == depth_) ends.erase(ends.begin());
    ends.push_back(root);
    for (int& node : ends) {
        node = add_child(node, token);
        raise(node);
    }
    ++nodes_[root].count;
}

void SuffixTrie::remove(std::span<const TokenId> text) {
    for (std::size_t first = 0; first < text.size(); ++first) {
        const auto strings = text.subspan(first, std::min<std::size_t>(depth_, text.size() - first));
        int node = root;
        for (const TokenId token : strings) {
            node = child(node, token);
            lower(node);
        }
        --nodes_[root].count;
    }
}

void SuffixTrie::unlink(int node) {
    const Node& removed = nodes_[node];
    Node& parent = nodes_[removed.parent];
    (removed.previous < 0 ? parent.first_child : nodes_[removed.previous].next) = removed.next;
    (removed.next < 0 ? parent.last_child : nodes_[removed.next].previous) = removed.previous;
}

/// `next` = -1: behind all children.
void SuffixTrie::insert_before(int node, int next, int parent) {
    Node& added = nodes_[node];
    added.next = next;
    added.previous = next < 0 ? nodes_[parent].last_child : nodes_[next].previous;
    (added.previous < 0 ? nodes_[parent].first_child : nodes_[added.previous].next) = node;
    (next < 0 ? nodes_[parent].last_child : nodes_[next].previous) = node;
}

/// A risen child passes those that had its count, and becomes the last of its new equals. The first of its
/// old equals becomes the first of the new ones.
void SuffixTrie::raise(int node) {
    Node& risen = nodes_[node];
    ++risen.count;
    if (risen.count == 1) return insert_before(node, -1, risen.parent);
    int before = risen.previous;
    if (before < 0 || nodes_[before].count > risen.count) return;
    const int equal = nodes_[before].count;
    int next = node;
    for (; before >= 0 && nodes_[before].count == equal; before = nodes_[before].previous) next = before;
    unlink(node);
    insert_before(node, next, risen.parent);
}

/// A fallen child becomes the first of its new equals.
void SuffixTrie::lower(int node) {
    Node& fallen = nodes_[node];
    --fallen.count;
    int next = fallen.next;
    while (next >= 0 && nodes_[next].count > fallen.count) next = nodes_[next].next;
    unlink(node);
    if (fallen.count > 0) insert_before(node, next, fallen.parent);
}

}  // namespace draftscope
