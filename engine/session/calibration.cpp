#include "engine/session/calibration.h"

#include <algorithm>

namespace draftscope {
namespace {

struct Match {
    int accepted = 0;
    bool decided = false;  ///< a committed token was not in the tree
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

std::vector<HeadEvalRow> CalibrationTrees::judge(std::span<const TokenId> tokens, bool at_end) {
    std::vector<HeadEvalRow> rows;
    std::erase_if(waiting_, [&](Waiting& shadow) {
        const auto known = tokens.subspan(std::min(shadow.first, tokens.size()));
        const Match found = match(shadow.tree, known);
        if (!found.decided && !at_end) return false;
        // A prompt that ended before any token followed the tree says nothing about it.
        if (known.empty()) return true;
        shadow.row.accepted = found.accepted;
        shadow.row.committed = std::min(found.accepted + 1, static_cast<int>(known.size()));
        shadow.row.covered = shadow.row.committed;
        rows.push_back(std::move(shadow.row));
        return true;
    });
    return rows;
}

}  // namespace draftscope
