#include "tests/support/beam_expansion.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/numel.h"

namespace draftscope {
namespace {

/// A child must not score above its parent, or reranking could keep the child alone. Positive values from
/// rounding become zero; NaN becomes -inf.
float clean_logprob(float value) {
    if (std::isnan(value)) return -std::numeric_limits<float>::infinity();
    return std::min(value, 0.0f);
}

}  // namespace

float BeamExpansion::rank_score(float logprob, int order) const {
    return sampled_ ? -1.0f - static_cast<float>(order) : logprob;
}

bool BeamExpansion::better(int a, int b) const {
    const float sa = pool_[a].score;
    const float sb = pool_[b].score;
    return sa != sb ? sa > sb : a < b;
}

void BeamExpansion::reset(TokenId root, const TreeSpec& spec, bool sampled) {
    root_ = root;
    spec_ = spec;
    sampled_ = sampled;
    pool_.clear();
    beam_.clear();
    chosen_flat_.clear();
}

void BeamExpansion::start(std::span<const TokenId> ids, std::span<const float> logprobs) {
    assert(ids.size() == logprobs.size());
    pool_.clear();
    beam_.clear();
    chosen_flat_.clear();
    if (spec_.choices) {
        const int count = static_cast<int>(ids.size());
        return keep_chosen(ids, logprobs, {&count, 1});
    }
    const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(spec_.topk));
    for (std::size_t i = 0; i < count; ++i) {
        const float logprob = clean_logprob(logprobs[i]);
        const float score = rank_score(logprob, static_cast<int>(i));
        pool_.push_back({ids[i], -1, static_cast<int>(i), logprob, score});
        beam_.push_back({static_cast<int>(i), 0, ids[i], score});
    }
}

void BeamExpansion::extend(std::span<const TokenId> ids, std::span<const float> logprobs,
                           std::span<const int> counts) {
    assert(counts.size() == beam_.size());
    if (spec_.choices) return keep_chosen(ids, logprobs, counts);
    const std::size_t first = pool_.size();
    proposing_row_.clear();
    for (std::size_t row = 0; row < beam_.size(); ++row) {
        const std::size_t base = row * spec_.topk;
        const int count = std::min(counts[row], spec_.topk);
        for (int c = 0; c < count; ++c) {
            const float logprob = clean_logprob(logprobs[base + c]);
            pool_.push_back(
                {ids[base + c], beam_[row].flat, -1, logprob, beam_[row].score + rank_score(logprob, c)});
            proposing_row_.push_back(static_cast<int>(row));
        }
    }
    keep_best(first, spec_.topk);
    beam_.clear();
    for (const int flat : order_) {
        Candidate& chosen = pool_[flat];
        chosen.row = static_cast<int>(beam_.size());
        beam_.push_back({flat, proposing_row_[flat - first], chosen.token, chosen.score});
    }
}

/// Sets order_ to the `count` best candidates from `first` on, best first.
void BeamExpansion::keep_best(std::size_t first, std::size_t count) {
    order_.resize(pool_.size() - first);
    std::iota(order_.begin(), order_.end(), static_cast<int>(first));
    const std::size_t keep = std::min(order_.size(), count);
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(keep), order_.end(),
                      [this](int a, int b) { return better(a, b); });
    order_.resize(keep);
}

/// Selects the next level of a static tree. Row r of the candidates belongs to beam node r, or to the root.
void BeamExpansion::keep_chosen(std::span<const TokenId> ids, std::span<const float> logprobs,
                                std::span<const int> counts) {
    const std::vector<TreeChoices::Node>& nodes = spec_.choices->nodes;
    next_.clear();
    const std::size_t first = chosen_flat_.size();
    int sibling = 0;
    for (std::size_t i = first; i < nodes.size() && nodes[i].depth == nodes[first].depth; ++i) {
        const TreeChoices::Node& node = nodes[i];
        sibling = i > first && nodes[i - 1].parent == node.parent ? sibling + 1 : 0;
        // Samples are taken in order, whatever ranks the tree names: a skipped sample would never be
        // verified.
        const int rank = sampled_ ? sibling : node.rank;
        chosen_flat_.push_back(-1);
        const int parent = node.parent < 0 ? -1 : chosen_flat_[node.parent];
        if (node.parent >= 0 && parent < 0) continue;
        const int row = parent < 0 ? 0 : pool_[parent].row;
        if (rank >= counts[row]) continue;
        const std::size_t at = numel(row, spec_.topk) + rank;
        const float logprob = clean_logprob(logprobs[at]);
        const float above = parent < 0 ? 0.0f : pool_[parent].score;
        const int flat = candidates();
        chosen_flat_.back() = flat;
        pool_.push_back({ids[at], parent, node.inner ? static_cast<int>(next_.size()) : -1, logprob,
                         above + rank_score(logprob, rank)});
        if (node.inner) next_.push_back({flat, row, ids[at], pool_.back().score});
    }
    beam_.swap(next_);
}

std::vector<int> BeamExpansion::ancestor_rows(int b) const {
    std::vector<int> rows;
    int flat = pool_[beam_[b].flat].parent;
    while (flat >= 0) {
        rows.push_back(pool_[flat].row);
        flat = pool_[flat].parent;
    }
    std::reverse(rows.begin(), rows.end());
    return rows;
}

DraftTree BeamExpansion::rerank() {
    DraftTree tree;
    rerank(tree);
    return tree;
}

void BeamExpansion::rerank(DraftTree& out) {
    keep_best(0, std::max(spec_.nodes - 1, 0));
    // In both orders parents precede their children.
    if (spec_.order == TreeOrder::eagle) std::sort(order_.begin(), order_.end());
    out.reset(root_, std::max(spec_.nodes, 1));
    node_of_.assign(pool_.size(), -1);
    for (const int flat : order_) {
        const Candidate& candidate = pool_[flat];
        const int parent = candidate.parent < 0 ? 0 : node_of_[candidate.parent];
        // A parent scores no less than its child and has a smaller index, so it was selected, too.
        assert(parent >= 0);
        node_of_[flat] = out.add(candidate.token, parent, candidate.logprob);
    }
}

}  // namespace draftscope
