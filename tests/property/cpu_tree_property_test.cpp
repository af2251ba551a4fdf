#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "tests/support/beam_expansion.h"

/// Compares trees that the CPU's ops grow with the reference expansion, at every level. Rows lack candidates,
/// so beams shrink and end and nodes of static trees are left out. Few distinct values make ties frequent;
/// some are NaN or -inf.
namespace draftscope::testing {
namespace {

constexpr int root_index = -1;

/// One level's candidates: [rows, k], of which `counts` a row exist.
struct Candidates {
    Candidates(Rng& rng, int rows, int k) {
        for (int r = 0; r < rows; ++r) {
            counts.push_back(rng.below(3) == 0 ? static_cast<int>(rng.below(k + 1)) : k);
            logsumexp.push_back(0.5f * static_cast<float>(rng.below(4)));
            for (int c = 0; c < k; ++c) {
                const std::uint32_t kind = rng.below(12);
                ids.push_back(c < counts.back() ? static_cast<std::int32_t>(rng.below(1000)) : -1);
                logits.push_back(kind == 0   ? std::numeric_limits<float>::quiet_NaN()
                                 : kind == 1 ? -std::numeric_limits<float>::infinity()
                                             : 0.25f * static_cast<float>(rng.below(9)) - 1.0f);
            }
        }
    }
    std::vector<std::int32_t> ids;
    std::vector<float> logits, logsumexp;
    std::vector<int> counts;
};

/// A tree that grows by ops, and the same tree by the reference.
class TwoTrees {
  public:
    TwoTrees(kernels::Backend& backend, const TreeSpec& spec, bool sampled, bool shared_logits)
        : backend_(backend), spec_(spec), sampled_(sampled), shared_logits_(shared_logits) {
        reference_.reset(root, spec, sampled);
        widest_ = spec.topk;
        if (spec.choices) widest_ = std::max(widest_, spec.choices->inner_nodes());
        scores_.assign(widest_, 0.0f);
        row_indices_.assign(widest_, root_index);
        static_rows_.assign(widest_, 0);
        tokens_.assign(widest_, -1);
        parents_.assign(widest_, -1);
    }

    /// Grows both trees by one level. Returns whether rows are left.
    bool grow(Rng& rng, int level) {
        const int k = spec_.topk, rows = level == 0 ? 1 : static_cast<int>(reference_.beam().size());
        const Candidates found(rng, shared_logits_ ? 1 : rows, k);
        extend_reference(found, level, rows);
        extend_by_op(found, level, rows);
        return !reference_.beam().empty();
    }

    void compare_rerank() {
        DraftTree expected = reference_.rerank();
        const int nodes = std::min(spec_.nodes, static_cast<int>(pool_tokens_.size()) + 1);
        const int width = spec_.depth + 3, first_row = 2, rows = first_row + nodes;
        std::vector<std::int32_t> tokens(rows, -7), parents(rows, -7), positions(rows, -7), counts(rows, -7),
            slots(numel(rows, width), -7), sampled_rows(rows, -7);
        std::vector<float> logprobs(rows, -7.0f);
        kernels::RerankOp op;
        op.sampled = sampled_;
        op.candidates = static_cast<int>(pool_tokens_.size());
        op.nodes = nodes;
        op.by_score = spec_.order == TreeOrder::fr;
        use_pool(op, 0);
        op.root = root;
        op.root_row = 5;
        op.first_row = first_row;
        op.first_slot = 50;
        op.first_position = 70;
        op.rows.tokens = tokens.data();
        op.rows.parents = parents.data();
        op.rows.positions = positions.data();
        op.rows.ancestor_counts = counts.data();
        op.rows.ancestor_slots = slots.data();
        op.rows.width = width;
        op.rows.logprobs = logprobs.data();
        op.rows.sampled_rows = sampled_rows.data();
        backend_.rerank(op);
        RC_ASSERT(expected.size() == nodes);
        RC_ASSERT(tokens[first_row - 1] == -7);
        std::vector<int> path;
        const AncestorMask mask = AncestorMask::from_parents(expected.parents);
        for (int i = 0; i < nodes; ++i) {
            const std::size_t r = first_row + i;
            RC_ASSERT(tokens[r] == expected.tokens[i]);
            RC_ASSERT(parents[r] == first_row + std::max(expected.parents[i], 0));
            RC_ASSERT(positions[r] == 70 + expected.depths[i]);
            RC_ASSERT(logprobs[r] == expected.logprobs[i]);
            mask.path(i, path);
            RC_ASSERT(counts[r] == static_cast<std::int32_t>(path.size()));
            for (std::size_t p = 0; p < path.size(); ++p) RC_ASSERT(slots[r * width + p] == 50 + path[p]);
        }
        RC_ASSERT(sampled_rows[first_row] == 5);
    }

  private:
    static constexpr TokenId root = 99;

    void extend_reference(const Candidates& found, int level, int rows) {
        const int k = spec_.topk;
        std::vector<TokenId> ids;
        std::vector<float> logprobs;
        std::vector<int> counts;
        for (int r = 0; r < rows; ++r) {
            const int from = shared_logits_ ? 0 : r;
            counts.push_back(found.counts[from]);
            for (int c = 0; c < k; ++c) {
                ids.push_back(found.ids[numel(from, k) + c]);
                logprobs.push_back(found.logits[numel(from, k) + c] -
                                   (sampled_ ? 0.0f : found.logsumexp[from]));
            }
        }
        if (level > 0) return reference_.extend(ids, logprobs, counts);
        const std::size_t count = counts[0];
        reference_.start({ids.data(), count}, {logprobs.data(), count});
    }

    void resize_pool(std::size_t size) {
        for (auto* values : {&pool_tokens_, &pool_parents_, &pool_rows_}) values->resize(size);
        for (auto* values : {&pool_logprobs_, &pool_scores_}) values->resize(size);
    }

    /// Sets the pool of an op, from its candidate `first` on.
    template <typename Op>
    void use_pool(Op& op, int first) {
        op.pool_tokens = pool_tokens_.data() + first;
        op.pool_logprobs = pool_logprobs_.data() + first;
        op.pool_scores = pool_scores_.data() + first;
        op.pool_parents = pool_parents_.data() + first;
        op.pool_rows = pool_rows_.data() + first;
    }

    /// Lists the nodes of a static tree at `level`, as StaticLevels does.
    void list_choices(int level) {
        const std::vector<TreeChoices::Node>& nodes = spec_.choices->nodes;
        const int above = level == 0 ? 1 : static_cast<int>(next_.size());
        mask_.assign(numel(above, spec_.topk), 0);
        next_.clear();
        complete_.resize(nodes.size(), 0);
        int sibling = 0;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            if (nodes[i].depth != level + 1) continue;
            sibling = i > 0 && nodes[i - 1].parent == nodes[i].parent ? sibling + 1 : 0;
            const int row = nodes[i].parent < 0 ? 0 : complete_[nodes[i].parent];
            const int cell = row * spec_.topk + (sampled_ ? sibling : nodes[i].rank);
            mask_[cell] = 1;
            if (!nodes[i].inner) continue;
            complete_[i] = static_cast<int>(next_.size());
            next_.push_back(cell);
        }
    }

    void extend_by_op(const Candidates& found, int level, int rows) {
        const int k = spec_.topk, first_index = static_cast<int>(pool_tokens_.size()), first_row = 3;
        const bool last = level == spec_.depth;
        const std::size_t size = first_index + numel(rows, k);
        resize_pool(size);
        std::int32_t counts[2] = {-1, -1};
        kernels::BeamOp op;
        if (spec_.choices) {
            list_choices(level);
            op.static_mask = mask_.data();
            op.static_next = next_.data();
            op.static_rows = static_rows_.data();
        }
        op.keep = last ? 0 : spec_.choices ? static_cast<int>(next_.size()) : k;
        std::vector<std::int32_t> next_slots(numel(op.keep, level + 1), -1);
        op.sampled = sampled_;
        op.level = level;
        op.rows = rows;
        op.k = k;
        op.ids = found.ids.data();
        op.logits = found.logits.data();
        op.logsumexp = found.logsumexp.data();
        op.shared_logits = shared_logits_;
        use_pool(op, first_index);
        op.next_first_row = 20 * (level + 1);
        op.row_indices = row_indices_.data();
        op.first_index = first_index;
        op.first_row = first_row;
        op.first_slot = 1000 * level;
        op.scores = scores_.data();
        op.next_tokens = tokens_.data();
        op.next_rows = parents_.data();
        op.ancestor_slots = slots_.data();
        op.next_ancestor_slots = next_slots.data();
        op.counts = counts;
        backend_.beam(op);
        const auto grown = static_cast<std::size_t>(first_index + counts[0]);
        RC_ASSERT(grown == static_cast<std::size_t>(reference_.candidates()));
        resize_pool(grown);
        slots_ = std::move(next_slots);
        if (last) {
            RC_ASSERT(counts[1] == 0);
            return;
        }
        RC_ASSERT(counts[1] == static_cast<int>(reference_.beam().size()));
        for (int b = 0; b < counts[1]; ++b) {
            const BeamExpansion::BeamNode& node = reference_.beam()[b];
            RC_ASSERT(tokens_[b] == node.token);
            RC_ASSERT(row_indices_[b] == node.flat);
            RC_ASSERT(parents_[b] == first_row + node.parent_row);
            RC_ASSERT(pool_rows_[node.flat] == op.next_first_row + b);
            if (!spec_.choices) RC_ASSERT(scores_[b] == node.score);
            const std::vector<int> ancestors = reference_.ancestor_rows(b);
            RC_ASSERT(ancestors.size() == static_cast<std::size_t>(level));
            for (int l = 0; l <= level; ++l)
                RC_ASSERT(slots_[numel(b, level + 1) + l] == 1000 * l + (l < level ? ancestors[l] : b));
        }
    }

    kernels::Backend& backend_;
    TreeSpec spec_;
    bool sampled_, shared_logits_;
    int widest_ = 0;
    BeamExpansion reference_;
    std::vector<std::int32_t> pool_tokens_, pool_parents_, pool_rows_;
    std::vector<float> pool_logprobs_, pool_scores_;
    std::vector<float> scores_;
    std::vector<std::int32_t> row_indices_, static_rows_, tokens_, parents_, slots_;
    std::vector<std::int32_t> mask_, next_;  ///< of a static tree's level
    std::vector<int> complete_;              ///< row of each inner node in its complete level
};

void grow_and_compare(TreeSpec spec, std::uint64_t seed, bool sampled, bool shared_logits) {
    const auto exec = kernels::make_cpu_backend(1);
    Rng rng(seed);
    TwoTrees trees((*exec), spec, sampled, shared_logits);
    for (int level = 0; level <= spec.depth; ++level)
        if (!trees.grow(rng, level)) break;
    trees.compare_rerank();
}

RC_GTEST_PROP(CpuTree, GrowsAsTheReference, ()) {
    TreeSpec spec{.depth = *rc::gen::inRange(0, 6),
                  .topk = *rc::gen::inRange(1, 12),
                  .nodes = *rc::gen::inRange(2, 80),
                  .order = *rc::gen::element(TreeOrder::eagle, TreeOrder::fr)};
    grow_and_compare(spec, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<bool>(),
                     *rc::gen::arbitrary<bool>());
}

RC_GTEST_PROP(CpuTree, GrowsStaticTreesAsTheReference, ()) {
    const auto& published = *rc::gen::elementOf(
        std::vector<PublishedChoices>(published_choices().begin(), published_choices().end()));
    const TreeSpec spec = parse_tree_spec("choices:" + std::string(published.name)).value();
    grow_and_compare(spec, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<bool>(),
                     *rc::gen::arbitrary<bool>());
}

}  // namespace
}  // namespace draftscope::testing
