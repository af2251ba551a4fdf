#include "engine/shadow/pending_trees.h"

#include <algorithm>

namespace draftscope {
namespace {

struct Match {
    int accepted = 0;
    bool decided = false;  ///< a committed token is not in the tree
};

Match match(const DraftTree& tree, std::span<const TokenId> tokens) {
    Match result;
    int at = 0;
    for (const TokenId token : tokens) {
        int child = -1;
        for (int i = at + 1; i < tree.size(); ++i)
            if (tree.parents[static_cast<std::size_t>(i)] == at &&
                tree.tokens[static_cast<std::size_t>(i)] == token)
                child = i;
        if (child < 0) {
            result.decided = true;
            break;
        }
        at = child;
        ++result.accepted;
    }
    return result;
}

}  // namespace

std::optional<std::size_t> AlignedTrees::oldest_row() const {
    std::optional<std::size_t> oldest;
    for (const Waiting& waiting : waiting_) oldest = std::min(oldest.value_or(waiting.first), waiting.first);
    if (oldest) --*oldest;  // the root's row predicts the first token after it
    return oldest;
}

std::vector<HeadEvalRow> AlignedTrees::judge(const kernels::Exec& exec, std::span<const TokenId> tokens,
                                             bool at_end, const VerifiedRows* verified,
                                             const Sampling& sampling) {
    std::vector<HeadEvalRow> rows;
    std::erase_if(waiting_, [&](Waiting& waiting) {
        const auto known = tokens.subspan(std::min(waiting.first, tokens.size()));
        const Match found = match(waiting.tree, known);
        if (!found.decided && !at_end) return false;
        // If the prompt ended before any token followed, the text does not decide the tree.
        if (known.empty()) return true;
        HeadEvalRow& row = waiting.row;
        row.accepted = found.accepted;
        row.committed = std::min(found.accepted + 1, static_cast<int>(known.size()));
        row.covered = row.committed;
        if (waiting.active == nullptr) {
            row.covered_mass = 1.0;
        } else {
            row.covered = 0;
            double mass = 0;
            for (int i = 0; i < row.committed; ++i) {
                row.covered += waiting.active->covers(known[static_cast<std::size_t>(i)], i) ? 1 : 0;
                if (verified != nullptr)
                    mass += verified->mass(exec, static_cast<int>(waiting.first) - 1 + i, *waiting.active,
                                           sampling, i);
            }
            if (verified != nullptr) row.covered_mass = mass / row.committed;
        }
        rows.push_back(std::move(row));
        return true;
    });
    return rows;
}

}  // namespace draftscope
