#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numel.h"
#include "engine/draft/drafter.h"
#include "engine/transformer/kv_cache.h"

namespace draftscope {

/// What a draft model keeps for a sequence: keys and values of its tokens, the root included. Those of
/// accepted nodes are kept, so that a round computes rows only for tokens that the tree had none
/// for.
struct DraftModelState final : DrafterState {
    static constexpr int root = -1, no_node = -2;
    /// A node of the latest tree that has keys and values.
    struct Node {
        TokenId token;
        int parent;  ///< index of a node, `root` or `no_node`
        int slot;
    };

    /// `slots`: with `keeps`, the longest text that the state can process.
    DraftModelState(KvCache kv_cache, bool keeps, int width)
        : cache(std::move(kv_cache)),
          num_rows(keeps ? cache.slots() : 1),
          keeps_slots(keeps),
          hidden(width) {}

    KvCache cache;
    int num_rows = 1;               ///< rows of `outputs`
    bool keeps_slots = false;       ///< rows are those of all slots; else the row is that of the last slot
    int hidden = 0;                 ///< d
    int known = 0;                  ///< slots whose keys and values the cache holds; at least its length
    kernels::DeviceBuffer outputs;  ///< [num_rows, d]; that of the root gives its candidates
    std::vector<Node> nodes;        ///< of the latest tree, level by level
    std::vector<std::int32_t>
        accepted_slots;  ///< rows after the committed slots that the text accepted, ascending
    int pass_rows = 0;   ///< of the job in the pass that is being enqueued

    float* output(int slot) const {
        return outputs.as<float>() + (keeps_slots ? numel(slot, hidden) : std::size_t{0});
    }
    /// Returns the tokens of a job that no slot holds.
    int unprocessed(const DraftJob& job) const {
        return static_cast<int>(job.tokens.size()) - cache.length();
    }
    /// Finds the nodes of the latest tree that `tokens` accepted. The last token is the next root, whose
    /// output is needed, so it is never one of them.
    void find_accepted(std::span<const TokenId> tokens) {
        accepted_slots.clear();
        int parent = root;
        const auto length = static_cast<std::size_t>(cache.length());
        for (std::size_t i = length; i + 1 < tokens.size(); ++i) {
            const auto same = [&](const Node& node) {
                return node.parent == parent && node.token == tokens[i];
            };
            const auto found = std::ranges::find_if(nodes, same);
            if (found == nodes.end()) break;
            accepted_slots.push_back(found->slot - cache.length());
            parent = static_cast<int>(found - nodes.begin());
        }
    }
    /// Commits the slots of the pass.
    void commit_pass() {
        cache.commit(pass_rows);
        known = keeps_slots ? std::max(known, cache.length()) : cache.length();
    }
    /// Makes room for `rows` rows after the known slots, and keeps the rows of the latest tree.
    void ensure_free(int rows) {
        const int length = cache.length();
        const int used = std::max(known, length);
        if (cache.slots() - used >= rows) return;
        cache.truncate(nodes.empty() ? used : std::max(used, nodes.back().slot + 1));
        cache.ensure_free(rows);
        cache.truncate(length);
    }
};

}  // namespace draftscope
