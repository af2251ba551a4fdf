#include "engine/shadow/shadow_drafter.h"

#include <algorithm>

#include "capture/head_traits.h"
#include "engine/sequence/round_rows.h"
#include "engine/shadow/shadow_evaluator.h"

namespace draftscope {
namespace {

/// Rounds of a text from one calibration round to the next.
constexpr std::int64_t calibration_interval = 2;

}  // namespace

ShadowDrafter::ShadowDrafter(DecodeContext& core) : core_(core), drafting_(core.drafter) {
    if (!can_evaluate_shadows(core)) return;
    for (const ShadowHead* shadow : aligned_heads(core.options)) {
        DraftingHead drafting{shadow->head, shadow->text, HeadMode::aligned, aligned_.size(), nullptr};
        if (!is_full_head(shadow->text))
            drafting.active = std::make_shared<DraftVocab>(shadow->head, core.vocab);
        aligned_.push_back(std::move(drafting));
    }
}

bool ShadowDrafter::calibrates(std::span<const Round> rounds) const {
    if (core_.full_head == nullptr || core_.head == nullptr || core_.full_head == core_.head ||
        is_full_head(core_.records.head_text()))
        return false;
    return std::ranges::any_of(rounds, [this](const Round& round) {
        const Sequence& sequence = *round.sequence;
        const int calibrated = sequence.shadows->calibrated;
        return round.job >= 0 && calibrated < core_.options.calibration_rounds &&
               sequence.outcome.rounds > calibration_interval * calibrated;
    });
}

bool ShadowDrafter::due(std::span<const Round> rounds) const {
    return can_evaluate_shadows(core_) && (!aligned_.empty() || calibrates(rounds));
}

Status ShadowDrafter::draft(std::span<const DraftJob> jobs, std::span<const Round> rounds) {
    core_.phases.set_observer(nullptr);  // only the driving head can be stepped through
    Status status;
    if (calibrates(rounds)) {
        const TimeNs start = monotonic_ns();
        status = draft_with({core_.full_head, std::string(full_head_id), HeadMode::calibration, 0, nullptr},
                            jobs, rounds);
        core_.full_draft_ns = monotonic_ns() - start;
        for (const Round& round : rounds) ++round.sequence->shadows->calibrated;
    }
    for (std::size_t i = 0; i < aligned_.size() && status.ok(); ++i)
        status = draft_with(aligned_[i], jobs, rounds);
    core_.phases.set_observer(&core_.gate);
    core_.spans.clear();  // they are no part of a step
    return status;
}

Status ShadowDrafter::draft_with(const DraftingHead& drafting, std::span<const DraftJob> driving,
                                 std::span<const Round> rounds) {
    core_.spans.collect();
    const std::size_t first = core_.spans.size();
    std::vector<DraftJob> jobs(driving.begin(), driving.end());
    std::vector<std::size_t> round_indices(jobs.size());
    for (std::size_t r = 0; r < rounds.size(); ++r) {
        if (rounds[r].job < 0) continue;
        const std::size_t i = rounds[r].job;
        const Sequence& sequence = *rounds[r].sequence;
        round_indices[i] = r;
        // The text as it was when the driving head drafted.
        jobs[i].tokens = std::span(sequence.tokens).first(sequence.tokens.size() - rounds[r].emitted.size());
        jobs[i].rows_per_call.clear();
        // The driving head's draft has caught up with the new slots.
        jobs[i].forget_slots();
        jobs[i].head_state = drafting.mode == HeadMode::aligned
                                 ? sequence.shadows->aligned[drafting.aligned_index].get()
                                 : nullptr;
    }
    DraftContext context{core_.backend, core_.phases, drafting.head, core_.options.tree, nullptr};
    DS_TRY(drafting_.draft(context, jobs));
    core_.spans.collect();
    const TimeNs head_ns = core_.spans.head_ns(first);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        PendingTree pending;
        pending.row = head_row(*drafting.head, jobs, i, drafting.text, drafting.mode);
        pending.row.run_id = core_.records.run_id();
        pending.row.round_id = core_.records.latest_round_id(round_indices[i], rounds.size());
        pending.row.head_ns = split_evenly(head_ns, i, jobs.size());
        pending.first = jobs[i].tokens.size();
        pending.tree = std::move(jobs[i].out);
        pending.active = active_set_for(drafting, jobs[i].head_state, pending.tree.max_depth() + 1);
        rounds[round_indices[i]].sequence->shadows->pending.push_back(std::move(pending));
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
