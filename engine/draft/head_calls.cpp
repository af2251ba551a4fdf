#include "engine/draft/head_calls.h"

#include <algorithm>

#include "base/numel.h"
#include "engine/draft/tree_levels.h"

namespace draftscope {

bool HeadCalls::prepare(DraftContext& context, RoundStep& step, std::span<const GrowingTree> trees,
                        int levels, int topk, int max_rows, bool shared) {
    step_ = &step;
    head_ = context.head;
    levels_ = levels;
    topk_ = topk;
    shared_ = shared;
    count_ = 0;
    calls_ = step.memory.host.list<Call>(levels);
    if (!head_->reserve(context.backend, levels, max_rows, topk)) return false;
    allocate_values(trees);
    return step.memory.enough();
}

/// Assigns indices to the values that the head stores, and allocates memory for them.
void HeadCalls::allocate_values(std::span<const GrowingTree> trees) {
    RoundMemory& memory = step_->memory;
    const std::size_t sizes = trees.size() * (static_cast<std::size_t>(levels_) + 1);
    set_first_ = memory.host.list<std::int32_t>(sizes);
    value_first_ = memory.host.list<std::size_t>(levels_ + 1);
    if (!memory.enough()) return;
    set_tokens_ = 0;
    std::size_t values = sizes;
    for (int level = 0; level <= levels_; ++level) {
        int rows = 0;
        for (const GrowingTree& tree : trees) {
            const int last = tree.job->tree.levels() - 1;
            std::int32_t& first = set_first_[set_at(tree.index, level)];
            if (level > last) {  // after its last call, a sequence keeps the set of that call
                first = set_first_[set_at(tree.index, last)];
                continue;
            }
            const int planned = shared_ ? 1 : width_at(tree.job->tree, level);
            rows += planned;
            first = static_cast<std::int32_t>(set_tokens_);
            set_tokens_ += head_->shape(level, planned).set;
        }
        value_first_[level] = values;
        if (level < levels_) values += head_->shape(level, rows).downloads;
    }
    values_ = memory.backend.alloc<std::int32_t>(values);
    sets_ = memory.backend.alloc<TokenId>(set_tokens_);
}

void HeadCalls::begin(DraftContext& context, int level, std::span<GrowingTree* const> trees, int rows,
                      const float* inputs) {
    Call& call = calls_[count_++];
    call = {level, rows, step_->memory.host.list<HeadSequence>(trees.size())};
    if (!step_->memory.enough()) return;
    const bool needs_sets = set_tokens_ > 0 && (head_->needs().sets || step_->plan.sets_by_head);
    for (std::size_t i = 0; i < call.sequences.size(); ++i) {
        const GrowingTree& tree = *trees[i];
        HeadSequence& sequence = call.sequences[i];
        sequence.state = tree.job->head_state;
        sequence.index = tree.index;
        sequence.first_row = tree.first_row;
        sequence.rows = shared_ ? 1 : tree.nodes;
        if (!needs_sets) continue;
        sequence.set = sets_ + set_first_[set_at(tree.index, level)];
        sequence.set_size = values_ + set_at(tree.index, level);
    }
    HeadCall begun = call_of(context, call);
    if (needs_inputs()) begun.inputs = inputs;
    head_->begin(begun);
}

HeadCall HeadCalls::call_of(DraftContext& context, const Call& call) {
    HeadCall out{context.backend, context.phases, step_->spans, call.level, call.rows, topk_, call.sequences};
    out.downloads = values_ + value_first_[call.level];
    out.sets_requested = set_tokens_ > 0 && step_->plan.sets_by_head;
    return out;
}

void HeadCalls::finish(std::span<const GrowingTree> trees, bool report_coverage) {
    RoundLayout& layout = step_->layout;
    kernels::Backend& backend = *step_->backend;
    if (step_->plan.sets_by_head) {
        for (const GrowingTree& tree : trees)
            for (int level = tree.job->tree.levels(); level <= levels_; ++level)
                backend.copy(values_ + set_at(tree.index, level),
                             values_ + set_at(tree.index, tree.job->tree.levels() - 1), sizeof(std::int32_t));
        const std::span<int> rows = step_->memory.host.list<int>(layout.trees().size());
        auto* first = step_->memory.backend.alloc<std::int32_t>(set_first_.size());
        if (!step_->memory.enough()) return;
        std::ranges::fill(rows, -1);
        for (const GrowingTree& tree : trees) rows[tree.job->tree_index] = tree.index;
        backend.upload(first, set_first_.data(), set_first_.size_bytes());
        layout.sets = {sets_, first, values_, rows};
    }
    values_index_ = step_->results.request(values_, value_first_[levels_]);
    reads_sets_ = head_->needs().sets && report_coverage;
    if (reads_sets_) sets_index_ = step_->results.request(sets_, set_tokens_);
}

void HeadCalls::collect() {
    if (count_ == 0) return;
    const RoundResults& results = step_->results;
    for (const Call& call : calls_.first(count_)) {
        call_sets_.clear();
        call_sizes_.clear();
        for (const HeadSequence& sequence : call.sequences) {
            if (!head_->needs().sets) break;
            const std::size_t at = set_at(sequence.index, call.level);
            const int capacity = head_->shape(call.level, sequence.rows).set;
            call_sizes_.push_back(std::clamp(results.values(values_index_ + at, 1)[0], 0, capacity));
            call_sets_.push_back(reads_sets_ ? results.values<TokenId>(sets_index_ + set_first_[at], capacity)
                                             : std::span<const TokenId>());
        }
        const std::size_t first = value_first_[call.level];
        const auto downloads = results.values(values_index_ + first,
                                              value_first_[static_cast<std::size_t>(call.level) + 1] - first);
        head_->collect(
            {step_->spans, call.level, call.rows, call.sequences, call_sets_, call_sizes_, downloads});
    }
    count_ = 0;
}

}  // namespace draftscope
