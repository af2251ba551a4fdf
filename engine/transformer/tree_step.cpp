#include "engine/transformer/tree_step.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/numel.h"

namespace draftscope {
bool TreeStep::place(kernels::Backend& backend, std::span<const TreePlan> plans) {
    backend_ = &backend;
    trees_.clear();
    added_.clear();
    rows_ = 0;
    rows_on_device_ = {};
    for (const TreePlan& plan : plans) {
        trees_.push_back(
            {rows_, plan.nodes, plan.levels, plan.max_path > 0 ? plan.max_path : plan.levels + 1});
        rows_ += plan.nodes;
        rows_on_device_.width = std::max(rows_on_device_.width, plan.levels + 1);
    }
    sets_come_ = plans.front().sets_come;
    has_sets_ = false;
    const std::size_t set_table = 2 * numel(static_cast<int>(plans.size()), rows_on_device_.width);
    // Trees are seldom uploaded, and a later step must not allocate for it.
    uploaded_.reserve(rows_, rows_on_device_.width);
    const std::size_t rows = rows_;
    if (!block_.resize_at_least(backend, paths_at() + trees_.size() * path_cells()) ||
        !positions_.resize_at_least(backend, rows) || !tail_sizes_.resize_at_least(backend, rows) ||
        !tails_.resize_at_least(backend, numel(rows_, rows_on_device_.width)) ||
        !sets_by_depth_.resize_at_least(backend, set_table) || !place_uniforms(plans) || !place_drafts(plans))
        return false;
    rows_on_device_.tokens = block_.as<std::int32_t>();
    rows_on_device_.parents = rows_on_device_.tokens + rows;
    rows_on_device_.logprobs = block_.as<float>() + 2 * rows;
    rows_on_device_.positions = positions_.as<std::int32_t>();
    rows_on_device_.ancestor_counts = tail_sizes_.as<std::int32_t>();
    rows_on_device_.ancestor_slots = tails_.as<std::int32_t>();
    return true;
}

bool TreeStep::place_uniforms(std::span<const TreePlan> plans) {
    drawn_ = !plans.front().uniforms.empty();
    if (!drawn_) return true;
    std::vector<double>& table = uniform_table_;
    table.assign(numel(static_cast<int>(plans.size()), rows_on_device_.width), 0.0);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        assert(static_cast<int>(plans[i].uniforms.size()) == plans[i].levels + 1);
        std::copy(plans[i].uniforms.begin(), plans[i].uniforms.end(),
                  table.begin() + static_cast<std::ptrdiff_t>(i) * rows_on_device_.width);
    }
    if (!uniforms_.resize_at_least(*backend_, numel(rows_, 1)) ||
        !uniforms_by_depth_.upload(*backend_, table))
        return false;
    rows_on_device_.uniforms = uniforms_.as<double>();
    return true;
}

bool TreeStep::place_drafts(std::span<const TreePlan> plans) {
    max_drafts_ = plans.front().max_drafts;
    if (max_drafts_ == 0) return true;
    const std::size_t each = numel(rows_on_device_.width, max_drafts_);
    std::vector<double>& table = draft_uniform_table_;
    table.assign(plans.size() * each, 0.0);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        assert(plans[i].max_drafts == max_drafts_ && plans[i].draft_uniforms.size() <= each);
        std::copy(plans[i].draft_uniforms.begin(), plans[i].draft_uniforms.end(),
                  table.begin() + static_cast<std::ptrdiff_t>(i * each));
    }
    const std::size_t rows = rows_, drafts = numel(rows_, max_drafts_);
    if (!draft_uniforms_by_depth_.upload(*backend_, table) || !drawn_rows_.resize_at_least(*backend_, rows) ||
        !draft_nodes_.resize_at_least(*backend_, rows) || !drafts_.resize_at_least(*backend_, drafts) ||
        !children_.resize_at_least(*backend_, drafts) || !draft_uniforms_.resize_at_least(*backend_, drafts))
        return false;
    rows_on_device_.sampled_rows = drawn_rows_.as<std::int32_t>();
    return true;
}

bool TreeStep::place_sets(std::span<const TreePlan> plans) {
    if (sets_come_ || plans.front().sets.empty()) return true;
    has_sets_ = true;
    set_index_.resize(trees_.size());
    std::iota(set_index_.begin(), set_index_.end(), 0);
    const std::size_t table = numel(static_cast<int>(plans.size()), rows_on_device_.width);
    set_table_.assign(2 * table, 0);
    std::vector<TokenId>& ids = next_ids_;
    auto& seen = seen_sets_;
    ids.clear();
    seen.clear();
    for (std::size_t i = 0; i < plans.size(); ++i)
        for (std::size_t d = 0; d < plans[i].sets.size(); ++d) {
            const std::span<const TokenId>* set = plans[i].sets[d];
            if (set == nullptr) continue;
            auto known =
                std::find_if(seen.begin(), seen.end(), [&](const auto& one) { return one.first == set; });
            if (known == seen.end()) {
                known = seen.insert(seen.end(), {set, static_cast<std::int32_t>(ids.size())});
                ids.insert(ids.end(), set->begin(), set->end());
            }
            const std::size_t at = i * rows_on_device_.width + d;
            set_table_[at] = known->second;
            set_table_[table + at] = static_cast<std::int32_t>(set->size());
        }
    if (ids != ids_ || set_ids_.empty()) {  // the sets of a stateless head are equal in every round
        if (!set_ids_.upload(*backend_, ids)) return false;
        std::swap(ids_, ids);
    }
    return sets_by_depth_.upload(*backend_, set_table_);
}

void TreeStep::use_sets(const TokenId* ids, std::span<const std::int32_t> first, const std::int32_t* sizes,
                        std::span<const int> trees) {
    assert(sets_come_ && first.size() <= numel(static_cast<int>(trees_.size()), rows_on_device_.width));
    has_sets_ = true;
    come_ids_ = ids;
    come_sizes_ = sizes;
    set_index_.assign(trees_.size(), -1);
    for (std::size_t i = 0; i < trees.size(); ++i) set_index_[trees[i]] = static_cast<int>(i);
    backend_->upload(sets_by_depth_.as<void>(), first.data(), first.size_bytes());
}

void TreeStep::aim(kernels::RerankOp& op, int index) const {
    const Tree& tree = trees_[index];
    op.nodes = tree.nodes;
    op.first_row = tree.first_row;
    op.rows = rows_on_device_;
    if (drawn_) op.uniforms = uniforms_by_depth_.data() + numel(index, rows_on_device_.width);
}

bool TreeStep::aim(kernels::SetProbabilityOp& op, int index) const {
    if (!has_sets_ || set_index_[index] < 0) return false;
    const std::size_t table = numel(static_cast<int>(trees_.size()), rows_on_device_.width);
    const std::size_t at = numel(set_index_[index], rows_on_device_.width);
    op.count = rows_on_device_.width;
    op.rows = device_path(index);
    op.d_count = device_path_count(index);
    op.first_row = trees_[index].first_row;
    op.first = sets_by_depth_.data() + at;
    op.size = sets_come_ ? come_sizes_ + at : op.first + table;
    op.ids = sets_come_ ? come_ids_ : set_ids_.data();
    return true;
}

void TreeStep::UploadedRows::reserve(int max_rows, int width) {
    for (auto* values : {&parents, &positions, &counts, &rows}) values->reserve(max_rows);
    slots.reserve(numel(max_rows, width));
    uniforms.reserve(max_rows);
    path.reserve(width);
}

void TreeStep::UploadedRows::clear() {
    for (auto* values : {&parents, &positions, &counts, &slots, &rows}) values->clear();
    uniforms.clear();
}

void TreeStep::upload_tree(int index, const DraftTree& tree, int position,
                           std::span<const std::int32_t> sampled_rows) {
    const int first = trees_[index].first_row, nodes = trees_[index].nodes, width = rows_on_device_.width;
    assert(tree.size() == nodes && tree.max_depth() < width);
    UploadedRows& all = uploaded_;
    all.clear();
    all.slots.resize(numel(nodes, width), 0);
    const std::size_t by_depth = numel(index, width);
    for (int n = 0; n < nodes; ++n) {
        const int depth = tree.depths[n];
        all.parents.push_back(first + std::max(tree.parents[n], 0));
        all.positions.push_back(position + depth);
        all.counts.push_back(depth + 1);
        all.rows.push_back(sampled_rows.empty() ? first + n : sampled_rows[n]);
        tree.mask.path(n, all.path);
        for (std::size_t i = 0; i < all.path.size(); ++i)
            all.slots[numel(n, width) + i] = position + all.path[i];
        if (drawn_) all.uniforms.push_back(uniform_table_[by_depth + depth]);
    }
    const auto upload = [&](auto* to, const auto& values, std::size_t at) {
        if (to != nullptr) backend_->upload(to + at, values.data(), values.size() * sizeof(values[0]));
    };
    upload(rows_on_device_.tokens, tree.tokens, first);
    upload(rows_on_device_.parents, all.parents, first);
    upload(rows_on_device_.logprobs, tree.logprobs, first);
    upload(rows_on_device_.positions, all.positions, first);
    upload(rows_on_device_.ancestor_counts, all.counts, first);
    upload(rows_on_device_.ancestor_slots, all.slots, numel(first, width));
    upload(rows_on_device_.uniforms, all.uniforms, first);
    upload(rows_on_device_.sampled_rows, all.rows, first);
}

bool TreeStep::use_certain_drafts() {
    if (!certain_.resize_at_least(*backend_, numel(2, rows_))) return false;
    use_drafts({certain_.data(), certain_.data() + rows_, 1, 0, nullptr, nullptr});
    return true;
}

std::int32_t* TreeStep::path_of(int index) const {
    return block_.as<std::int32_t>() + paths_at() + numel(index, path_cells());
}
const std::int32_t* TreeStep::device_path(int index) const {
    return path_of(index);
}
const std::int32_t* TreeStep::device_path_count(int index) const {
    return device_path(index) + rows_on_device_.width;
}

void TreeStep::accept_by_choices(const std::int32_t* choices, std::int64_t stride) {
    follow_choices_.clear();
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        std::int32_t* path = path_of(static_cast<int>(i));
        follow_choices_.push_back({rows_on_device_, trees_[i].first_row, trees_[i].nodes, choices, stride,
                                   trees_[i].max_path, path, path + rows_on_device_.width});
    }
    backend_->follow_argmax(follow_choices_);
}

void TreeStep::accept_by_rejection(kernels::RejectionSampleOp op, int max_nodes) {
    assert(max_drafts_ > 0 && drawn_from_.probs != nullptr);
    lists_.clear();
    follow_accepted_.clear();
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        kernels::ListChildrenOp& list = lists_.emplace_back();
        list.rows = rows_on_device_;
        list.first_row = trees_[i].first_row;
        list.nodes = trees_[i].nodes;
        list.max_count = max_drafts_;
        list.uniforms = draft_uniforms_by_depth_.as<double>() + i * numel(rows_on_device_.width, max_drafts_);
        list.stride = drawn_from_.stride;
        list.support = drawn_from_.support;
        list.first_id = drawn_from_.ids == nullptr ? -1 : 0;
        list.sizes = drawn_from_.sizes;
        if (list.sizes != nullptr) list.id_stride = drawn_from_.stride;
        list.out = draft_nodes_.as<kernels::RejectionNode>();
        list.drafts = drafts_.as<std::int32_t>();
        list.draft_uniforms = draft_uniforms_.as<double>();
        list.children = children_.as<std::int32_t>();
        std::int32_t* path = path_of(static_cast<int>(i));
        follow_accepted_.push_back({trees_[i].first_row, max_drafts_, rows_on_device_.width, op.accepted,
                                    children_.as<std::int32_t>(), path, path + rows_on_device_.width});
    }
    op.nodes = draft_nodes_.as<kernels::RejectionNode>();
    op.drafts = drafts_.as<std::int32_t>();
    op.uniforms = draft_uniforms_.as<double>();
    op.ids = drawn_from_.ids;
    op.probs = drawn_from_.probs;
    op.saved = drawn_from_.room;
    backend_->sample_and_follow(op, max_nodes, lists_, follow_accepted_);
}

void TreeStep::accept_typical(const kernels::EntropyOp& entropy, kernels::AcceptTypicalOp op) {
    typical_.clear();
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        op.rows = rows_on_device_;
        op.first_row = trees_[i].first_row;
        op.nodes = trees_[i].nodes;
        op.path = path_of(static_cast<int>(i));
        op.count = op.path + rows_on_device_.width;
        typical_.push_back(op);
    }
    backend_->accept_typical_trees(entropy, typical_);
}

void TreeStep::enqueue_download() {
    here_.resize(paths_at() + trees_.size() * path_cells());
    block_.download(*backend_, here_);
    for (const Download& one : added_) backend_->download(one.to, one.from, one.bytes);
    added_.clear();
}

Status TreeStep::read_tree(int index, DraftTree& out) const {
    const std::span<const std::int32_t> tokens = part(index, 0), parents = part(index, 1),
                                        logprobs = part(index, 2);
    const int first = trees_[index].first_row, nodes = trees_[index].nodes;
    out.reset(tokens[0], nodes);
    for (int n = 1; n < nodes; ++n) {
        // Missing candidates are the last nodes, each its own parent.
        if (parents[n] == first + n) break;
        if (parents[n] < first || parents[n] > first + n)
            return failed("the device's draft tree: node {} has no parent before it", n);
        out.add(tokens[n], parents[n] - first, std::bit_cast<float>(logprobs[n]));
    }
    return out.finish();
}

std::span<const int> TreeStep::path(int index) const {
    const std::int32_t* from = here_.data() + paths_at() + numel(index, path_cells());
    return {from, static_cast<std::size_t>(from[rows_on_device_.width])};
}

}  // namespace draftscope
