#include "engine/shadow/shadow_drafter.h"

#include <algorithm>

#include "capture/head_traits.h"
#include "engine/record/round_rows.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {

ShadowDrafter::ShadowDrafter(DecodeContext& core) : core_(core) {
    if (!can_evaluate_shadows(core)) return;
    for (const ShadowHead* shadow : aligned_heads(core.options)) {
        DraftingHead drafting{shadow->head, shadow->text, HeadMode::aligned, aligned_.size(), nullptr};
        if (!is_full_head(shadow->text))
            drafting.active = std::make_shared<DraftVocab>(shadow->head, core.vocab);
        aligned_.push_back(std::move(drafting));
    }
}

bool ShadowDrafter::calibrates(std::span<Sequence* const> sequences) const {
    if (core_.full_head == nullptr || core_.head == nullptr || core_.full_head == core_.head ||
        is_full_head(core_.records.head_text()))
        return false;
    return std::ranges::any_of(sequences, [this](const Sequence* sequence) {
        return sequence->calibrated < core_.options.calibration_rounds;
    });
}

bool ShadowDrafter::due(std::int64_t step, std::span<Sequence* const> sequences) const {
    const std::int64_t warm = step - core_.options.warmup_steps;
    return warm >= 0 && warm % 2 == 0 && can_evaluate_shadows(core_) &&
           (!aligned_.empty() || calibrates(sequences));
}

Status ShadowDrafter::draft(std::span<const DraftJob> jobs, std::span<Sequence* const> sequences,
                            std::span<const std::size_t> indices) {
    core_.phases.set_observer(nullptr);  // only the driving head can be stepped through
    Status status;
    if (calibrates(sequences)) {
        status = draft_with({core_.full_head, std::string(full_head_id), HeadMode::calibration, 0, nullptr},
                            jobs, sequences, indices);
        for (Sequence* sequence : sequences) ++sequence->calibrated;
    }
    for (std::size_t i = 0; i < aligned_.size() && status.ok(); ++i)
        status = draft_with(aligned_[i], jobs, sequences, indices);
    core_.phases.set_observer(&core_.gate);
    return status;
}

Status ShadowDrafter::draft_with(const DraftingHead& drafting, std::span<const DraftJob> driving,
                                 std::span<Sequence* const> sequences, std::span<const std::size_t> indices) {
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    std::vector<DraftJob> jobs(driving.begin(), driving.end());
    std::vector<HeadState*> states;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].head_state = drafting.mode == HeadMode::aligned
                                 ? sequences[i]->shadows->aligned[drafting.aligned_index].get()
                                 : nullptr;
        jobs[i].rows_per_call.clear();
        states.push_back(jobs[i].head_state);
    }
    DraftContext context{core_.exec, core_.phases, drafting.head, core_.options.tree, nullptr};
    DS_TRY(core_.drafter.expand(context, jobs));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first, core_.spans.size());
    head_ns_ += head_ns;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        PendingShadowTrees::PendingTree pending;
        pending.row = head_row(*drafting.head, jobs, i, drafting.text, drafting.mode);
        pending.row.run_id = core_.records.run_id();
        pending.row.round_id = core_.records.next_round_id(indices[i]);
        pending.row.head_ns = split_evenly(head_ns, i, jobs.size());
        pending.tree = std::move(jobs[i].out);
        pending.first = sequences[i]->tokens.size();
        pending.active = active_set_for(drafting, states[i], pending.tree.max_depth() + 1);
        sequences[i]->aligned.add(std::move(pending));
    }
    return {};
}

/// The head's state changes before the tree is evaluated, so its sets are read now.
std::shared_ptr<DraftVocab> ShadowDrafter::active_set_for(const DraftingHead& drafting,
                                                          const HeadState* state, int levels) const {
    if (state == nullptr) return drafting.active;
    auto frozen = std::make_shared<DraftVocab>(drafting.head, core_.vocab);
    frozen->begin_round(state);
    frozen->freeze(levels);
    return frozen;
}

}  // namespace draftscope
