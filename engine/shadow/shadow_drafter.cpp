#include "engine/shadow/shadow_drafter.h"

#include <algorithm>

#include "engine/record/round_rows.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {

BesideDrafts::BesideDrafts(SessionCore& core) : core_(core) {
    if (!can_judge_beside(core)) return;
    for (const ShadowHead* shadow : aligned_heads(core.options)) {
        Beside beside{shadow->head, shadow->text, HeadMode::aligned, aligned_.size(), nullptr};
        if (shadow->text != "full") beside.active = std::make_shared<ActiveSets>(shadow->head, core.vocab);
        aligned_.push_back(std::move(beside));
    }
}

bool BesideDrafts::calibrates(std::span<Sequence* const> sequences) const {
    if (core_.full_head == nullptr || core_.head == nullptr || core_.full_head == core_.head ||
        core_.records.head_text() == "full")
        return false;
    return std::ranges::any_of(sequences, [this](const Sequence* sequence) {
        return sequence->calibrated < core_.options.calibration_rounds;
    });
}

bool BesideDrafts::due(std::int64_t step, std::span<Sequence* const> sequences) const {
    const std::int64_t warm = step - core_.options.warmup_steps;
    return warm >= 0 && warm % 2 == 0 && can_judge_beside(core_) &&
           (!aligned_.empty() || calibrates(sequences));
}

Status BesideDrafts::draft(std::span<const DraftJob> jobs, std::span<Sequence* const> sequences,
                           std::span<const std::size_t> indices) {
    core_.phases.set_observer(nullptr);  // only the driving head can be stepped through
    Status status;
    if (calibrates(sequences)) {
        status = draft_with({core_.full_head, "full", HeadMode::calibration, 0, nullptr}, jobs, sequences,
                            indices);
        for (Sequence* sequence : sequences) ++sequence->calibrated;
    }
    for (std::size_t i = 0; i < aligned_.size() && status.ok(); ++i)
        status = draft_with(aligned_[i], jobs, sequences, indices);
    core_.phases.set_observer(&core_.gate);
    return status;
}

Status BesideDrafts::draft_with(const Beside& beside, std::span<const DraftJob> driving,
                                std::span<Sequence* const> sequences, std::span<const std::size_t> indices) {
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    std::vector<DraftJob> jobs(driving.begin(), driving.end());
    std::vector<HeadState*> states;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].head_state =
            beside.mode == HeadMode::aligned ? sequences[i]->shadows->aligned[beside.place].get() : nullptr;
        jobs[i].head_rows.clear();
        states.push_back(jobs[i].head_state);
    }
    DraftContext context{core_.exec, core_.phases, beside.head, core_.options.tree, nullptr};
    ProposeContext at_start{core_.exec, core_.phases, 0};
    beside.head->begin_round(at_start, states);
    DS_TRY(core_.drafter.expand(context, jobs));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first, core_.spans.size());
    head_ns_ += head_ns;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        AlignedTrees::Waiting waiting;
        waiting.row = head_row(*beside.head, jobs, i, beside.text, beside.mode);
        waiting.row.run_id = core_.records.run_id();
        waiting.row.round_id = core_.records.next_round_id(indices[i]);
        waiting.row.head_ns = part_of(head_ns, i, jobs.size());
        waiting.tree = std::move(jobs[i].out);
        waiting.first = sequences[i]->tokens.size();
        waiting.active = active_of(beside, states[i], waiting.tree.max_depth() + 1);
        sequences[i]->aligned.add(std::move(waiting));
    }
    return {};
}

/// The head's state changes before the tree is evaluated, so its sets are read now.
std::shared_ptr<ActiveSets> BesideDrafts::active_of(const Beside& beside, const HeadState* state,
                                                    int levels) const {
    if (state == nullptr) return beside.active;
    auto frozen = std::make_shared<ActiveSets>(beside.head, core_.vocab);
    frozen->begin_round(state);
    frozen->freeze(levels);
    return frozen;
}

}  // namespace draftscope
