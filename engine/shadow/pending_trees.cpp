#include "engine/shadow/pending_trees.h"

#include <algorithm>

#include "engine/verify/tree_path.h"

namespace draftscope {
std::optional<std::size_t> PendingShadowTrees::oldest_row() const {
    std::optional<std::size_t> oldest;
    for (const PendingTree& pending : trees_)
        oldest = std::min(oldest.value_or(pending.first), pending.first);
    if (oldest) --*oldest;  // the root's row predicts the first token after it
    return oldest;
}

std::vector<HeadEvalRow> PendingShadowTrees::evaluate(const kernels::Backend& backend,
                                                      std::span<const TokenId> tokens, bool at_end,
                                                      const VerifiedLogits* verified,
                                                      const Sampling& sampling) {
    std::vector<HeadEvalRow> rows;
    std::erase_if(trees_, [&](PendingTree& pending) {
        const auto known = tokens.subspan(std::min(pending.first, tokens.size()));
        const auto accepted = follow_path(pending.tree, known).size() - 1;
        // A committed token that is not in the tree decides it.
        if (accepted == known.size() && !at_end) return false;
        // If the prompt ended before any token followed, the text does not decide the tree.
        if (known.empty()) return true;
        HeadEvalRow& row = pending.row;
        row.accepted = static_cast<int>(accepted);
        row.committed = std::min(row.accepted + 1, static_cast<int>(known.size()));
        row.covered = row.committed;
        if (pending.active == nullptr) {
            row.covered_mass = 1.0;
        } else {
            row.covered = 0;
            double covered_prob = 0;
            for (int i = 0; i < row.committed; ++i) {
                row.covered += pending.active->covers(known[i], i) ? 1 : 0;
                if (verified != nullptr)
                    covered_prob += verified->covered_prob(backend, static_cast<int>(pending.first) - 1 + i,
                                                           *pending.active, sampling, i);
            }
            if (verified != nullptr) row.covered_mass = covered_prob / row.committed;
        }
        rows.push_back(std::move(row));
        return true;
    });
    return rows;
}

}  // namespace draftscope
