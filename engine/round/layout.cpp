#include "engine/round/layout.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace draftscope {

bool RoundLayout::lay_out(kernels::Backend& backend, RoundMemory& memory, const RoundPlan& plan) {
    backend_ = &backend;
    plan_ = &plan;
    trees_.clear();
    rows_ = 0;
    for (const TreePlan& tree : plan.trees) {
        trees_.push_back({rows_, tree.nodes});
        rows_ += tree.nodes;
    }
    planned_rows_ = rows_;
    draft_probs = {};
    sets = {};
    const std::size_t rows = rows_;
    RoundArena& arena = memory.backend;
    auto* block = arena.alloc<std::int32_t>(block_size());
    arrays_ = {};
    arrays_.width = plan.width;
    arrays_.positions = arena.alloc<std::int32_t>(rows);
    arrays_.ancestor_counts = arena.alloc<std::int32_t>(rows);
    arrays_.ancestor_slots = arena.alloc<std::int32_t>(rows * plan.width);
    const bool sampled = !plan.uniforms.empty();
    uniforms_ = sampled ? arena.alloc<double>(plan.uniforms.size()) : nullptr;
    arrays_.uniforms = sampled ? arena.alloc<double>(rows) : nullptr;
    draft_uniforms_ = plan.max_drafts > 0 ? arena.alloc<double>(plan.draft_uniforms.size()) : nullptr;
    arrays_.sampled_rows = plan.max_drafts > 0 ? arena.alloc<std::int32_t>(rows) : nullptr;
    if (!memory.enough()) return false;
    arrays_.tokens = block;
    arrays_.parents = block + array_at(1);
    arrays_.logprobs = reinterpret_cast<float*>(block + array_at(2));
    if (sampled) backend.upload(uniforms_, plan.uniforms.data(), plan.uniforms.size() * sizeof(double));
    if (plan.max_drafts > 0)
        backend.upload(draft_uniforms_, plan.draft_uniforms.data(),
                       plan.draft_uniforms.size() * sizeof(double));
    return plan.sets.empty() || upload_sets(memory);
}

/// Uploads the sets of the plan, each once.
bool RoundLayout::upload_sets(RoundMemory& memory) {
    const std::size_t entries = plan_->sets.size();
    const std::span<int> table_row = memory.host.list<int>(trees_.size());
    const std::span<std::int32_t> table = memory.host.list<std::int32_t>(2 * entries);
    std::size_t tokens = 0;
    for (const auto* set : plan_->sets) tokens += set == nullptr ? 0 : set->size();
    const std::span<TokenId> ids = memory.host.list<TokenId>(tokens);
    auto* placed = memory.backend.alloc<std::int32_t>(table.size());
    if (!memory.enough()) return false;
    std::iota(table_row.begin(), table_row.end(), 0);
    std::size_t count = 0;
    for (std::size_t i = 0; i < entries; ++i) {
        const std::span<const TokenId>* set = plan_->sets[i];
        if (set == nullptr) continue;
        const auto known =
            std::find(plan_->sets.begin(), plan_->sets.begin() + static_cast<std::ptrdiff_t>(i), set);
        const auto earlier = static_cast<std::size_t>(known - plan_->sets.begin());
        table[i] = earlier < i ? table[earlier] : static_cast<std::int32_t>(count);
        table[entries + i] = static_cast<std::int32_t>(set->size());
        if (earlier < i) continue;
        std::copy(set->begin(), set->end(), ids.begin() + static_cast<std::ptrdiff_t>(count));
        count += set->size();
    }
    const std::span<const TokenId> all = ids.first(count);
    if (!std::ranges::equal(all, ids_) ||
        uploaded_ids_.empty()) {  // equal in every round of a stateless head
        if (!uploaded_ids_.upload(*backend_, all)) return false;
        ids_.assign(all.begin(), all.end());
    }
    backend_->upload(placed, table.data(), table.size_bytes());
    sets = {uploaded_ids_.data(), placed, placed + entries, table_row};
    return true;
}

void RoundLayout::set_nodes(int tree_index, int nodes) {
    assert(nodes <= plan_->trees[tree_index].nodes);
    trees_[tree_index].nodes = nodes;
    rows_ = 0;
    for (Tree& one : trees_) {
        one.first_row = rows_;
        rows_ += one.nodes;
    }
}

void RoundLayout::upload_tree(RoundMemory& memory, int tree_index, const DraftTree& tree, int position) {
    const int first = trees_[tree_index].first_row, nodes = trees_[tree_index].nodes, width = plan_->width;
    assert(tree.size() == nodes && tree.max_depth() < width);
    const auto list = [&](std::size_t count) { return memory.host.list<std::int32_t>(count).data(); };
    std::int32_t *parents = list(nodes), *positions = list(nodes), *counts = list(nodes);
    std::int32_t* certain = list(nodes);
    std::int32_t* slots = list(numel(nodes, width));
    double* uniforms = memory.host.list<double>(nodes).data();
    if (!memory.enough()) return;
    for (int n = 0; n < nodes; ++n) {
        const int depth = tree.depths[n];
        parents[n] = first + std::max(tree.parents[n], 0);
        positions[n] = position + depth;
        counts[n] = depth + 1;
        certain[n] = -1;
        tree.mask.path(n, path_);
        for (std::size_t i = 0; i < path_.size(); ++i) slots[numel(n, width) + i] = position + path_[i];
        if (uniforms_ != nullptr) uniforms[n] = plan_->uniforms[plan_->at(tree_index, depth)];
    }
    const auto upload = [&](auto* to, const auto* values, std::size_t count, std::size_t at) {
        if (to != nullptr) backend_->upload(to + at, values, count * sizeof(*values));
    };
    upload(arrays_.tokens, tree.tokens.data(), nodes, first);
    upload(arrays_.parents, parents, nodes, first);
    upload(arrays_.logprobs, tree.logprobs.data(), nodes, first);
    upload(arrays_.positions, positions, nodes, first);
    upload(arrays_.ancestor_counts, counts, nodes, first);
    upload(arrays_.ancestor_slots, slots, numel(nodes, width), numel(first, width));
    upload(arrays_.uniforms, uniforms, nodes, first);
    upload(arrays_.sampled_rows, certain, nodes, first);
}

void RoundLayout::set_rows(kernels::RerankOp& op, int tree_index) const {
    op.nodes = trees_[tree_index].nodes;
    op.first_row = trees_[tree_index].first_row;
    op.rows = arrays_;
    op.uniforms = uniforms(tree_index);
}

void RoundLayout::set_rows(kernels::SetProbabilityOp& op, int tree_index) const {
    const std::size_t at = numel(sets.table_row[tree_index], plan_->width);
    op.count = plan_->width;
    op.rows = path(tree_index);
    op.d_count = path_count(tree_index);
    op.first_row = trees_[tree_index].first_row;
    op.first = sets.first + at;
    op.size = sets.sizes + at;
    op.ids = sets.ids;
}

}  // namespace draftscope
